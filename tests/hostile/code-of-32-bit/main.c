#include "hostile.h"
int main(void)
{
#ifdef __x86_64__
    /* mov eax, 20; int 0x80; hlt: the last one crashes if the call passed. */
    static const unsigned char code[] = {0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0x93, 0xb8, 1, 0, 0, 0, 0x31,
                                         0xdb, 0xcd, 0x80};
    void *place = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_FIXED, -1, 0);
    if (place == MAP_FAILED)
        return 1;
    memcpy(place, code, sizeof code);
    struct {
        uint32_t offset;
        uint16_t segment;
    } __attribute__((packed)) far_pointer = {0x10000000, 0x23};
    __asm__ volatile("ljmpl *%0" : : "m"(far_pointer) : "memory");
#endif
    return 1; /* with exit(0) from there it would have been a success */
}
