"""MySQL and MariaDB, read with connectorx."""
