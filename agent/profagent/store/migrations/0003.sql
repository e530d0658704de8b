-- Of version 2; the views stay as they are. A log may hold generations that its board deleted once they were copied.

ALTER TABLE log ADD COLUMN base INTEGER NOT NULL DEFAULT 0;

PRAGMA user_version = 3;
