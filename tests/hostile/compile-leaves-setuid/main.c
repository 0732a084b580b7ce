#include "hostile.h"
int main(void)
{
    if (getuid() != geteuid() || geteuid() < @FIRST_UID@ || geteuid() > @LAST_UID@)
        ESCAPED("user %u", geteuid());
    HELD();
    return 0;
}
