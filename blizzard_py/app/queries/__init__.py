"""Sources of tables and APIs: from their settings to what they ask, plan and explain."""
