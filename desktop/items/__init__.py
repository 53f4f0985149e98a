"""What lists, tables and menus show: Qt item models, and the plain entries and texts they are made of."""
