#include "hostile.h"
int main(void)
{
    HELD();
    raise(SIGSEGV);
    abort();
}
