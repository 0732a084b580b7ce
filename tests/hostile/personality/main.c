#include "hostile.h"
#include <sys/personality.h>
int main(void)
{
    MUST_FAIL(personality(ADDR_NO_RANDOMIZE));
    MUST_FAIL(personality(READ_IMPLIES_EXEC));
    MUST_FAIL(personality(PER_LINUX32));
    MUST_FAIL(personality(MMAP_PAGE_ZERO));
    MUST_FAIL(syscall(SYS_personality, 0x0040000000000000UL | ADDR_NO_RANDOMIZE));
    if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        ESCAPED("a page at address 0");
    HELD();
    return 0;
}
