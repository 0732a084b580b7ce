/* The guard: memory of the kernel that no cgroup counts.
 *
 * The kernel counts most of what it keeps for a program (page tables, stacks, pipes, inodes) for
 * the program's cgroup, which is limited. Some it does not: it never did, or forgot to, and nobody
 * knows the whole list. What is known of it is refused or bounded elsewhere (filter.c, inside.c). For
 * the rest init looks, while a run lasts, at what the whole machine's kernel holds and cannot give
 * back. A run ends when that growth and what is counted for it are more than its limit together.
 *
 * Whose the growth is cannot be told for certain. What speaks for others is left out: what the
 * kernel counts for the runs in other slots, and what could not have been taken in the processor time
 * that the run used. When the run has been ended, and all that it had is gone, as much memory must come
 * back; if it does not, it was somebody else's (ANSWER_UNSURE). And if other slots worked at the same
 * time the client repeats the run with nobody beside it before it believes it (ANSWER_UNCOUNTED).
 *
 * The same where the machine is nearly out of memory: then a run that took uncounted memory ends,
 * before the kernel looks for somebody to kill, who would be another. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    MIB = 1 << 20,
    /* Allowed beyond the limit: what other daemons of the machine take and give back meanwhile. */
    MARGIN = 8 * MIB,
    /* What we expect of a core at most, which decides when to look again ... */
    EXPECTED_MIB_S = 512, /* twice the fastest that is known */
    /* ... and the most that could be: pages can be had at this rate if nobody touches them. */
    MOST_BYTES_US = 8192,
    LEAST_PAUSE_NS = 1000000,
    MOST_PAUSE_NS = 20000000,
};

int guard_open(struct guard_machine *machine, struct fault *fault)
{
    const uint64_t least = 32 * MIB, most = 512 * MIB;
    char text[4096];

    machine->meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (machine->meminfo < 0 || !read_text(machine->meminfo, text, sizeof text))
        return fault_errno(fault, "cannot read /proc/meminfo");
    machine->reserve_bytes = text_key(text, "MemTotal:") * 1024 / 32;
    if (machine->reserve_bytes < least)
        machine->reserve_bytes = least;
    if (machine->reserve_bytes > most)
        machine->reserve_bytes = most;
    return 0;
}

/* What the machine's kernel holds, without what it counts for others' runs. */
struct level {
    int64_t bytes;
    int64_t counted; /* of it, for this run */
    uint64_t available;
};

static bool read_level(const struct guard *guard, const struct guard_machine *machine,
                       const struct cgroup_home *home, struct level *level)
{
    /* Stacks are in VmallocUsed. What is not there, because the kernel is too old, is 0. */
    static const char *const keys[] = {"SUnreclaim:", "PageTables:", "SecPageTables:",
                                       "VmallocUsed:", "Percpu:"};
    char text[4096];

    if (!read_text(machine->meminfo, text, sizeof text))
        return false;
    uint64_t all = cgroup_kernel_bytes(home, home->kernel);
    uint64_t own = cgroup_kernel_bytes(home, guard->counted);
    level->bytes = all > own ? -(int64_t)(all - own) : 0;
    level->counted = (int64_t)own;
    level->available = text_key(text, "MemAvailable:") * 1024;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        level->bytes += (int64_t)text_key(text, keys[i]) * 1024;
    return true;
}

static void note_growth(struct guard *guard, int64_t level, uint64_t cpu_us)
{
    int64_t change = level - guard->level;
    int64_t possible = (int64_t)(cpu_us - guard->cpu_us) * MOST_BYTES_US;

    if (guard->looked)
        guard->grown += change < possible ? change : possible;
    if (guard->grown < 0) /* somebody else gave back what there was before */
        guard->grown = 0;
    guard->level = level;
    guard->cpu_us = cpu_us;
    guard->looked = true;
}

bool guard_look(struct guard *guard, const struct guard_machine *machine,
                const struct cgroup_home *home, const struct cgroup *group, uint64_t memory_bytes,
                unsigned cpus, uint64_t *pause_ns)
{
    struct level level;

    *pause_ns = MOST_PAUSE_NS;
    if (!guard->looked)
        guard->counted = cgroup_open_kernel(home, group);
    if (!read_level(guard, machine, home, &level))
        return true;
    note_growth(guard, level.bytes, cgroup_cpu_us(home, group));
    int64_t uncounted = guard->grown - level.counted;
    if (uncounted > MARGIN && level.available < machine->reserve_bytes) {
        guard->taken = (uint64_t)uncounted + cgroup_memory_bytes(home, group, false);
        return false;
    }
    /* Files that were only read can be dropped, but to tell them apart takes longer. */
    int64_t left = (int64_t)memory_bytes + MARGIN - (uncounted > 0 ? uncounted : 0);
    left -= (int64_t)cgroup_memory_bytes(home, group, false);
    if (left < 0 && uncounted > MARGIN) {
        guard->taken = (uint64_t)uncounted + cgroup_memory_bytes(home, group, true);
        left = (int64_t)memory_bytes + MARGIN - (int64_t)guard->taken;
        if (left < 0)
            return false;
    }
    if (left < MARGIN - uncounted) /* what is counted may be dropped, but never be more */
        left = MARGIN - uncounted;
    uint64_t until_ns = left < 0 ? 0 : (uint64_t)left * 1000 / MIB * 1000000 / EXPECTED_MIB_S / cpus;
    if (until_ns < MOST_PAUSE_NS)
        *pause_ns = until_ns < LEAST_PAUSE_NS ? LEAST_PAUSE_NS : until_ns;
    return true;
}

bool guard_settle(const struct guard *guard, const struct guard_machine *machine,
                  const struct cgroup_home *home)
{
    enum { PAUSE_MS = 5, TIMES = 200 };
    struct level now;

    /* The kernel frees some of it a moment later. */
    for (int i = 0; i < TIMES; i++) {
        if (read_level(guard, machine, home, &now) &&
            guard->level - now.bytes >= guard->grown - MARGIN * 3 / 4)
            return true;
        poll(NULL, 0, PAUSE_MS);
    }
    return false;
}

void guard_close(struct guard *guard)
{
    if (guard->looked && guard->counted >= 0)
        close(guard->counted);
}
