#include "hostile.h"
#include <linux/memfd.h>
int main(void)
{
    size_t size = 4 << 20;
    char *block = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (block != MAP_FAILED)
        ESCAPED("MAP_HUGETLB");
    MUST_FAIL(shmget(IPC_PRIVATE, size, SHM_HUGETLB | IPC_CREAT | 0600));
    int fd = memfd_create("huge", MFD_HUGETLB);
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0 &&
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
        ESCAPED("MFD_HUGETLB");
    HELD();
    return 0;
}
