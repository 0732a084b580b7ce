int option_with_wrapper;
