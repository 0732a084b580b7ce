/* Since 6.16 a process can have a hash table of the size it names (PR_FUTEX_HASH); a futex that is
 * waited for by priority has an object of its own. */
#include "hostile.h"

static void work(int number)
{
    for (long slots = 1L << 30; slots >= 2; slots /= 2)
        if (prctl(78 /* PR_FUTEX_HASH */, 1, slots >> number, 0, 0) == 0)
            break;
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
