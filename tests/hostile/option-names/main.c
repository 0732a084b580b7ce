#include "hostile.h"
int main(void)
{
#ifdef FORGED
    ESCAPED("an option by a file name");
#endif
    HELD();
    return 0;
}
