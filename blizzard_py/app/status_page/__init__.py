"""The parts of Blizzard's status page that its sources give: history, peers, stories, commands."""
