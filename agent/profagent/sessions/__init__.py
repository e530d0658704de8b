"""The sessions of a workspace: listed, named as baselines, cleared."""
