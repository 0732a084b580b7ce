#include "hostile.h"
#pragma GCC plugin "/box/plugin.so"
#pragma GCC optimize("-fplugin=/box/plugin.so")
#pragma GCC optimize("-wrapper sh,-c,echo ESCAPED >&2")
#pragma GCC target("arch=native")
#pragma comment(linker, "/include:/etc/shadow")
#pragma GCC dependency "/etc/shadow"
#pragma GCC push_options
__attribute__((optimize("-specs=/box/specs"), noinline)) static int odd(void)
{
    return 0;
}
int main(void)
{
    if (odd())
        return 1;
    HELD();
    return 0;
}
