#if __INCLUDE_LEVEL__ < 190
#pragma message "a line that is printed two to the power of one hundred and ninety times over"
#include __FILE__
#include __FILE__
#endif
