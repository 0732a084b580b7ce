/* oj-box: what its parts share. The theory of operation is in main.c. */
#ifndef BOX_H
#define BOX_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifndef BOX_VERSION
#define BOX_VERSION "unknown"
#endif

/* ---- fail.c: our own faults ------------------------------------------- */

/* Why something of ours failed, in words for the log. Never about the program. */
struct fault {
    char text[256];
};

/* Fills in `fault` and returns -1. `fault_errno` appends ": strerror(errno)". */
int fault_say(struct fault *fault, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int fault_errno(struct fault *fault, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends this process: our fault, seen by the administrator. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- request.c: the messages; no side effects -------------------------- */

enum {
    MESSAGE_MAX_BYTES = 128 * 1024,
    ARGUMENTS_MAX = 4096,
    SLOTS_MAX = 128,
    PARTS_MAX = 64, /* directories of the host that the administrator adds */
    FILES_MAX = 1 << 20,
    FILES_DEFAULT = 4096,
    DESCRIPTORS_MAX = 8, /* received with one message; more are closed */
};

enum message_kind {
    MESSAGE_RUN = 1,    /* with descriptors: tree, stdin, stdout, stderr [, data] */
    MESSAGE_CANCEL = 2, /* the run with this number, if it is the current one */
    MESSAGE_FORGET = 3, /* drop the slot's tree and layer; answered */
};

enum run_flags {
    RUN_KEEP = 1, /* keep what the program changes as a layer (compile) */
    RUN_DATA = 2, /* a fifth descriptor: the directory laid over the tree */
    RUN_FLAGS_ALL = 3,
};

/* The fixed start of every message to a slot; little-endian, as the CPU has it.
 * A run is followed by NUL-terminated strings: cwd, argc arguments, envc
 * variables, and nothing else. */
struct message_head {
    char magic[4]; /* "OJB2": the version is part of it */
    uint32_t kind;
    uint64_t number; /* chosen by the client, returned in the answer */
    uint32_t flags;
    uint32_t argc;
    uint32_t envc;
    uint32_t files; /* most files and directories, existing ones not counted */
    uint64_t cpu_us;
    uint64_t wall_us;
    uint64_t memory_bytes;
    uint64_t output_bytes;
    uint64_t processes;
    uint64_t disk_bytes;
};

enum answer_kind {
    ANSWER_RAN = 1,
    ANSWER_FAILED = 2, /* our fault; the text says why */
    ANSWER_READY = 3,  /* after start, on the control socket, with the slots' sockets */
    ANSWER_FORGOT = 4,
};

enum limit_hit {
    LIMIT_NONE,
    LIMIT_CPU,
    LIMIT_WALL,
    LIMIT_MEMORY,
    LIMIT_OUTPUT,
    LIMIT_PROCESSES,
    LIMIT_DISK,
};

enum answer_flags {
    ANSWER_STDOUT_CUT = 1,
    ANSWER_STDERR_CUT = 2,
    ANSWER_CANCELLED = 4,
    ANSWER_KEPT = 8,         /* the layer was kept */
    ANSWER_NOT_EXECUTED = 16, /* there was no program to run: `error` says why */
    ANSWER_UNCOUNTED = 32, /* ended for memory that is not counted for anybody (guard.c) */
    ANSWER_UNSURE = 64,    /* which did not come back, and so was somebody else's */
};

/* Every answer; the text of a failure is NUL-terminated. */
struct answer {
    char magic[4];
    uint32_t kind;
    uint64_t number;
    int32_t exit_code; /* -1: ended by a signal */
    int32_t signal;    /* 0: it exited */
    uint32_t limit;
    uint32_t flags;
    int32_t error; /* errno of the exec that failed; 0: it was executed */
    uint32_t unused;
    uint64_t cpu_us;
    uint64_t wall_us;
    uint64_t memory_bytes;
    uint64_t processes;
    uint64_t stdout_bytes;
    uint64_t stderr_bytes;
    struct fault fault;
};

/* A checked message. The strings point into the bytes it was parsed from. */
struct request {
    struct message_head head;
    const char *cwd;
    const char *argv[ARGUMENTS_MAX + 1];
    const char *envp[ARGUMENTS_MAX + 1];
};

/* 0, or -1 with the reason in `fault`. */
int request_parse(struct request *request, const char *bytes, size_t length, struct fault *fault);

/* How many descriptors a message of this kind and flags carries. */
int request_descriptors(const struct message_head *head);

/* "2s", "1500ms", "2m" -> microseconds; "64M", "1g", "4096" -> bytes. False: not that. */
bool parse_duration(const char *text, uint64_t *microseconds);
bool parse_size(const char *text, uint64_t *bytes);

const char *limit_name(enum limit_hit limit);

/* ---- cgroup.c: accounting and limits ----------------------------------- */

/* The whole of a small file from its start; false if it cannot be read. */
bool read_text(int fd, char *text, size_t size);
/* The number behind "KEY " at the start of a line; 0 if there is none. */
uint64_t text_key(const char *text, const char *key);

enum cgroup_version { CGROUP_V1 = 1, CGROUP_V2 = 2 };

enum { CGROUP_TREES = 2 }; /* of which a run has its own cgroups. v1: memory, pids; v2: one */

/* Our own subtree. Opened once, by the first process. */
struct cgroup_home {
    enum cgroup_version version;
    int trees;
    int parent[CGROUP_TREES]; /* the cgroup this process was started in */
    int dir[CGROUP_TREES];    /* ours, below it: every run is below this one */
    /* v1, the same: every slot is below this one. Otherwise -1. */
    int cpuacct_parent, cpuacct_dir;
    int cpu_parent, cpu_dir; /* only where cpu is not mounted with cpuacct */
    char name[64];
    int locks[CGROUP_TREES + 2], lock_count; /* of ours in each hierarchy, for as long as main lives */
    bool has_swap; /* swap can be limited, and must be */
    int kernel;    /* tells what the kernel counts of itself for all runs */
};

/* v1: the cgroup of a slot's programs, one run after the other, for their processor time. The kernel
 * only ever adds to that, so what a run used is a difference, and just as exact. */
struct cgroup_share {
    int attach, usage; /* -1 on v2 */
};

/* The cgroup of one run: made ahead, used once, removed. */
struct cgroup {
    char name[32];
    int dir;                  /* v2: itself */
    int attach[CGROUP_TREES]; /* v1: the `tasks` files */
    int cpu;                  /* v1: the slot's */
    int attach_cpu;           /* v1: the slot's */
    uint64_t cpu_before_us;   /* used by the slot's runs before */
    int memory_peak, memory_events, pids_peak, pids_now;
    uint64_t memory_limit_bytes, least_limit_bytes; /* now, and ever: the guard lowers it */
};

struct cgroup_usage {
    uint64_t cpu_us;
    uint64_t memory_bytes;
    uint64_t processes; /* at most at one time; 0 where the kernel does not say */
    uint64_t oom_kills;
    bool starved; /* killed for memory within its limit: the machine, or who is above, had none */
    bool memory_exhausted; /* the peak is the limit, and not for files that could be dropped */
};

/* Finds the hierarchies, sweeps what dead predecessors left, makes our subtree. */
int cgroup_open_home(struct cgroup_home *home, unsigned slots, struct fault *fault);
/* For a slot: its share of the processors, and where their use is counted. */
int cgroup_take_share(const struct cgroup_home *home, struct cgroup_share *share, unsigned slot,
                      struct fault *fault);
/* For a slot: the locks on our cgroups are main's alone, and end with it. */
void cgroup_unlock(const struct cgroup_home *home);
/* Removes our subtree, once nothing runs any more. */
void cgroup_close_home(const struct cgroup_home *home);

int cgroup_make(const struct cgroup_home *home, struct cgroup *group,
                const struct cgroup_share *share, unsigned slot, unsigned long serial,
                struct fault *fault);
int cgroup_limit(const struct cgroup_home *home, struct cgroup *group,
                 uint64_t memory_bytes, uint64_t processes, struct fault *fault);
/* While it runs; where more is used that cannot be dropped, v1 leaves it as it is. */
void cgroup_change_limit(const struct cgroup_home *home, struct cgroup *group,
                         uint64_t memory_bytes);
/* Used now by all of the run; without what it only read, if so wanted. */
uint64_t cgroup_memory_bytes(const struct cgroup_home *home, const struct cgroup *group,
                             bool without_files);
/* Tells what the kernel counts of itself for this run; to be closed. -1: it does not tell. */
int cgroup_open_kernel(const struct cgroup_home *home, const struct cgroup *group);
uint64_t cgroup_kernel_bytes(const struct cgroup_home *home, int kernel);
/* v1: the calling, single-threaded process moves itself in. */
int cgroup_enter(const struct cgroup_home *home, const struct cgroup *group);
uint64_t cgroup_cpu_us(const struct cgroup_home *home, const struct cgroup *group);
uint64_t cgroup_processes(const struct cgroup *group); /* now, where there is no peak */
uint64_t cgroup_oom_kills(const struct cgroup *group);
uint64_t cgroup_forks_refused(const struct cgroup_home *home, const struct cgroup *group);
/* Whether the kernel itself ends the whole run when it kills one process for memory. */
bool cgroup_kills_together(const struct cgroup_home *home);
int cgroup_usage(const struct cgroup_home *home, const struct cgroup *group,
                 struct cgroup_usage *usage, struct fault *fault);
void cgroup_remove(const struct cgroup_home *home, struct cgroup *group);

/* True where the caller's cgroup was not delegated, so that `oj-box run` needs a scope. */
bool cgroup_needs_scope(void);

/* ---- guard.c: memory that no cgroup counts ------------------------------- */

struct guard_machine {
    int meminfo, vmstat, loadavg;
    uint64_t reserve_bytes; /* that the machine shall keep available */
};

/* What a run seems to have taken; begins as zeros. */
struct guard {
    bool looked;
    int counted;     /* a file that tells what is counted for the run itself */
    int64_t level;   /* of the machine's kernel at the last look */
    uint64_t cpu_us; /* of the run, then */
    uint64_t noted_ns;
    int64_t own;     /* counted for the run, of the level */
    int64_t grown;   /* since the first look, as far as it can be the run's */
    int64_t uncounted; /* of that, what seems not to be counted for it */
    int64_t held;      /* of that, what is believed */
    unsigned seen;     /* how many looks in a row found more of it than the margin */
    int64_t seen_through; /* what it may seem to be before that is checked again at once */
    uint64_t checked_ns, check_took_ns;
    unsigned cpus;
    int64_t busy;      /* of them, with the run between the last two looks */
    int64_t ended[16]; /* processes and threads, at some looks, in a ring */
    unsigned ended_at;
    uint64_t ended_ns;
    bool lowered;    /* its cgroup's limit, by that */
    uint64_t taken;  /* what made it end: all that is counted, and what is not */
};

int guard_open(struct guard_machine *machine, struct fault *fault);
/* False: the run has to end. Otherwise how long it can be left alone. */
bool guard_look(struct guard *guard, const struct guard_machine *machine,
                const struct cgroup_home *home, struct cgroup *group, uint64_t memory_bytes,
                unsigned cpus, uint64_t *pause_ns);
/* When the run that had to end is dead: whether what it seemed to have taken comes back. */
bool guard_settle(const struct guard *guard, const struct guard_machine *machine,
                  const struct cgroup_home *home);
void guard_close(struct guard *guard);

/* ---- tree.c: what a program sees of the host --------------------------- */

/* Moves the calling process into a new mount namespace whose root is a small
 * read-only tree: chosen parts of the host, /dev, and the mount points below. */
int tree_enter(char *const extra_parts[], struct fault *fault);

/* A mount namespace with nothing in it, as a descriptor. */
int tree_make_empty(struct fault *fault);

/* Mount points in that tree. What is mounted below TREE_SHARED by the slot or an init also appears in
 * the other's mount namespace, and what is unmounted is gone there, too: so it outlives an init. */
#define TREE_BOX "/box"       /* what the program sees */
#define TREE_PRIVATE "/.oj"   /* where it cannot look */
#define TREE_RUN "/.oj/run"   /* the run's own tmpfs */
#define TREE_SHARED "/.oj/shared"
#define TREE_LOWER "/.oj/shared/tree"  /* the client's directory */
#define TREE_DATA "/.oj/shared/data"   /* its second directory */
#define TREE_LAYER "/.oj/shared/layer" /* what compile left behind */
#define TREE_NEXT "/.oj/shared/next"   /* a run's tmpfs while it may become the layer */

/* ---- filter.c: system calls --------------------------------------------- */

/* Puts the caller, who stays privileged, and all that it starts under the filter. */
int filter_enter(struct fault *fault);

/* What the filter lets only ourselves do: calls of up to five arguments. */
long pass_call(long number, long a, long b, long c, long d, long e);
int pass_mount(const char *from, const char *to, const char *type, unsigned long flags,
               const char *options);
int pass_umount(const char *path); /* detaches it */

/* ---- slot.c ---------------------------------------------------------------- */

struct slot_settings {
    const struct cgroup_home *home;
    unsigned number;
    uid_t uid;
    int socket;  /* the client's */
    int host_ns; /* the mount namespace in which the client's directories are */
    int empty_ns; /* and the one that programs are in */
    int core;    /* programs stay on this one; -1: they go where there is room */
    char *const *extra_parts;
};

/* Serves one slot until its socket closes. Writes "" or a fault to `ready`. */
_Noreturn void slot_serve(const struct slot_settings *settings, int ready);

/* For the slot and init: signals that mean nothing to them, such as those that
 * `systemctl kill` sends to all processes of a unit, wait for ever. */
void block_strays(void);

uint64_t now_ns(void);

/* ---- wire.c -------------------------------------------------------------- */

/* 1: a message; 0: the peer is gone; -1: an error or nothing there. `length` and
 * `count` are how much there is room for, and become how much came. */
int receive_message(int socket, char *bytes, size_t *length, int *fds, int *count, int flags);
/* Also tells the user who sent it, if the socket passes credentials. */
int receive_message_of(int socket, char *bytes, size_t *length, int *fds, int *count, int flags,
                       uid_t *sender);
int send_message(int socket, const void *bytes, size_t length, const int *fds, int count);

/* ---- shell.c: for administrators ----------------------------------------- */

int shell_run(int argc, char **argv);
int shell_check(int argc, char **argv);

/* main.c: starts `slots` slots; returns their sockets for the client. */
struct box {
    struct cgroup_home home;
    unsigned slots;
    int sockets[SLOTS_MAX];
    pid_t pids[SLOTS_MAX];
};
int box_open(struct box *box, unsigned slots, uid_t first_uid, bool pin, char *const *extra_parts,
             struct fault *fault);
void box_close(struct box *box);

#endif
