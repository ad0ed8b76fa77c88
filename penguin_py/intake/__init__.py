"""Files on their way in: footers read, owners told, and what becomes of each."""
