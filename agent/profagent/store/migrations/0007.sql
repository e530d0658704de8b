-- Of version 6: the counters that a session's counter map is not certain of.

ALTER TABLE session ADD COLUMN counter_map_likely TEXT;

PRAGMA user_version = 7;
