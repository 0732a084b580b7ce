#include "hostile.h"
int main(void)
{
    HELD();
    return 0;
}
