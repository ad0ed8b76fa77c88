"""The one YAML file that both daemons read: its keys and its checks."""
