"""The one YAML file that both daemons read: what may stand in it, and how it is checked."""
