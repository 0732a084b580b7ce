int option_with_plugin;
