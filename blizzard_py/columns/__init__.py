"""Column watermarks, pure and public: see the names below."""
