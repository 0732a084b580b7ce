#include "hostile.h"
int main(void)
{
    size_t size = 8 << 20;
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    MUST_FAIL(setrlimit(RLIMIT_MEMLOCK, &all));
    MUST_FAIL(mlock(block, size));
    MUST_FAIL(mlockall(MCL_CURRENT | MCL_FUTURE));
    if (mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) != MAP_FAILED)
        ESCAPED("MAP_LOCKED");
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    MUST_FAIL(shmctl(id, SHM_LOCK, NULL));
    HELD();
    return 0;
}
