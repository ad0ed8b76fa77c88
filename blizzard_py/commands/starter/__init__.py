"""The first configuration that ``blizzard init`` proposes."""
