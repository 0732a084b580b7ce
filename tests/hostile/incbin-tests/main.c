#include "hostile.h"
__asm__(".section .rodata\nwords: .incbin \"@SECRET_FILE@\"\n.byte 0\n.text");
extern const char words[];
int main(void)
{
    ESCAPED("%s", words);
    return 0;
}
