int option_by_list; /*
-DFORGED=1
*/
