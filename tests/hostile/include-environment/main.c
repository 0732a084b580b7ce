#include "hostile.h"
__asm__(".section .rodata\nwords: .incbin \"/proc/self/environ\"\nwords_end: .byte 0\n.text");
extern const char words[], words_end[];
int main(void)
{
    char name[16] = "OJ-SEC";
    strcat(name, "RET-");
    if (memmem(words, (size_t)(words_end - words), name, strlen(name)))
        ESCAPED("the environment of the judge");
    HELD();
    return 0;
}
