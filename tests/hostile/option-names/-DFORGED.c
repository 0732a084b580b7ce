int option_by_name;
