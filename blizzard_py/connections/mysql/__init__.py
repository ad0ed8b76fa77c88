"""MySQL and MariaDB by connectorx."""
