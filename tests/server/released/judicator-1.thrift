/*
 * The service between oj's judicators and everyone else: executors, gateways,
 * the `oj` command, and clients of yours in any language that Thrift knows.
 *
 * Transport: TFramedTransport over TCP (default port 7500).
 * Protocol:  TBinaryProtocol, strict. Frames above 16 MiB are refused by
 *            closing the connection.
 *
 * Stability: fields and arguments are only ever added, optional, with new
 * ids. A client compiled from an older copy of this file goes on working.
 *
 * Retrying: every call may be repeated after a lost connection or an
 * Unavailable, at this or at another judicator. `add` is made repeatable by
 * the idempotency key: set `Task.key` and a second add with the same user and
 * key returns the first id.
 *
 * Times are milliseconds since 1970-01-01 UTC. Sizes are bytes. Durations end
 * in _ms.
 */

namespace py oj.rpc
namespace cpp oj
namespace js oj
namespace java oj
namespace go oj

/* ---------------------------------------------------------------- limits */

/* Inline data above this many bytes is refused: send it as a blob. */
const i32 INLINE_BYTES = 65536
/* All inline data of one task together. */
const i32 TASK_INLINE_BYTES = 1048576
/* The largest blob. */
const i64 BLOB_BYTES = 268435456
/* The most data that one putBlob carries or one getBlob returns. */
const i32 CHUNK_BYTES = 1048576
/* The most tests of one task, files of one task, tasks of one addMany. */
const i32 MAX_TESTS = 1000
const i32 MAX_FILES = 256
const i32 MAX_TASKS = 1000
/* The largest page of a search. */
const i32 MAX_PAGE = 1000
/* The longest wait of `wait` and `report`; a longer one is shortened. */
const i32 MAX_WAIT_MS = 60000

/* ------------------------------------------------------------ vocabulary */

/* The life of a task. `done` is true for SUCCESS and everything after it. */
enum Status {
  PENDING = 1,        /* waits for an executor */
  COMPILING = 2,
  RUNNING = 3,
  RETRYING = 4,       /* was given to an executor that was lost; waits again */
  SUCCESS = 10,       /* judged to the end; the verdict tells how it went */
  COMPILE_FAILED = 11,
  RUN_FAILED = 12,    /* at least one test was not accepted */
  CANCELLED = 13,
  INTERNAL_ERROR = 14 /* the judge failed, not the program; see `message` */
}

/* What the contestant learns, of one test and of the whole task. */
enum Verdict {
  ACCEPTED = 1,
  WRONG_ANSWER = 2,
  PRESENTATION_ERROR = 3, /* only where a checker tells it */
  TIME_LIMIT = 4,         /* CPU time */
  WALL_LIMIT = 5,         /* idled past the wall-clock limit */
  MEMORY_LIMIT = 6,
  OUTPUT_LIMIT = 7,
  RUNTIME_ERROR = 8,      /* non-zero exit code or a signal */
  COMPILE_ERROR = 9,
  JUDGE_ERROR = 10,
  SKIPPED = 11            /* not run, because stop_on_failure was set */
}

/* How a test's output is compared with the expected output. */
enum Compare {
  EXACT = 1,  /* byte by byte */
  TOKENS = 2, /* words, ignoring the amount and kind of white space */
  FLOATS = 3  /* as TOKENS; words that are numbers may differ by `tolerance`,
                 absolute or relative */
}

/* ------------------------------------------------------------------ task */

/* Some bytes: exactly one of the two is set. */
struct Data {
  1: optional binary inline_data, /* at most INLINE_BYTES */
  2: optional string digest       /* lower-case hex SHA-256 of a stored blob */
}

/* A file of the task. The name is relative, in UTF-8, has at most 255 bytes a
 * part, and no part is empty, '.', or '..'. */
struct File {
  1: required string name,
  2: required Data data
}

/* What one step may use. Unset: the language's or the executor's default. */
struct Limits {
  1: optional i32 cpu_ms,
  2: optional i32 wall_ms,
  3: optional i64 memory_bytes,
  4: optional i64 output_bytes, /* of stdout and of stderr, each */
  5: optional i32 processes,
  6: optional i64 disk_bytes    /* written to files */
}

/* A command and its limits. Without a command, the language gives it. */
struct Step {
  1: optional list<string> command, /* argv; argv[0] is a path or a name in PATH */
  2: optional Limits limits
}

struct Test {
  1: optional string name,      /* default: its number from 1 */
  2: optional Data input,       /* standard input; default: empty */
  3: optional Data expected,    /* unset: any output is right */
  4: optional double weight     /* its share of the score; default 1 */
}

/* What `add` takes. Either a language, or at least an execute.command. */
struct Task {
  1: optional string language,
  2: optional list<File> source, /* seen by compile and by run */
  3: optional Step compile,
  4: optional Step execute,
  5: optional list<Test> tests,  /* none: one test with no input and no expectation */
  6: optional string user,       /* whose share of the cluster it uses; default "" */
  7: optional i32 priority,      /* -100 to 100; higher goes first; default 0 */
  8: optional set<string> tags,
  9: optional string key,        /* idempotency key, unique for the user */
  10: optional Compare compare,  /* default TOKENS */
  11: optional double tolerance, /* for FLOATS; default 1e-6 */
  12: optional bool stop_on_failure, /* skip what follows the first failed test */
  13: optional list<File> data   /* seen by run only, never by compile */
}

/* What one run of a program used and how it ended. */
struct Outcome {
  1: optional i64 cpu_ms,
  2: optional i64 wall_ms,
  3: optional i64 memory_bytes,  /* peak */
  4: optional i32 exit_code,     /* set if it exited */
  5: optional i32 signal,        /* set if a signal ended it */
  6: optional binary stdout_data, /* kept up to a limit */
  7: optional bool stdout_cut,
  8: optional binary stderr_data,
  9: optional bool stderr_cut,
  10: optional i32 processes,    /* peak */
  11: optional i64 cpu_us,       /* cpu_ms, finer */
  12: optional i64 wall_us
}

struct TestResult {
  1: optional string name,
  2: optional Verdict verdict,
  3: optional Outcome outcome,
  4: optional string message     /* for people: 'line 3: expected 4, got 5' */
}

struct Result {
  1: optional Status status,     /* a final one */
  2: optional Verdict verdict,
  3: optional Outcome compile,   /* set if there was a compile step */
  4: optional list<TestResult> tests,
  5: optional double score,      /* weights of accepted tests over all weights, 0 to 1 */
  6: optional string message
}

/* One try to judge the task. */
struct Attempt {
  1: optional i32 number,
  2: optional string executor,
  3: optional i64 start_time,
  4: optional string ended       /* why it did not lead to a result; unset: it is under way or did */
}

/* A task as the judicators know it. Which parts are set depends on `what`. */
struct TaskInfo {
  1: required string id,
  2: required Status status,
  3: required bool done,
  4: optional Verdict verdict,
  5: optional string executor,    /* who runs it, or ran it last */
  6: optional i32 attempt,        /* the number of the last attempt; 0 before the first */
  7: optional i64 add_time,
  8: optional i64 start_time,     /* of the last attempt */
  9: optional i64 report_time,    /* when the status changed last */
  10: optional i32 tests_done,
  11: optional i32 tests_total,
  12: optional double score,
  13: optional string message,
  14: optional string language,
  15: optional string user,
  16: optional i32 priority,
  17: optional set<string> tags,
  18: optional Task task,         /* with GET_TASK */
  19: optional Result result,     /* with GET_RESULT, once done */
  20: optional list<Attempt> attempts, /* with GET_ATTEMPTS */
  21: optional string key
}

/* What `get` and `wait` return beyond the summary: a sum of these. */
const i32 GET_SUMMARY = 0
const i32 GET_TASK = 1
const i32 GET_RESULT = 2
const i32 GET_ATTEMPTS = 4
const i32 GET_ALL = 7

/* ---------------------------------------------------------------- search */

/* All that are set must hold. */
struct Conditions {
  1: optional set<string> ids,
  2: optional string user,
  3: optional set<Status> statuses,
  4: optional set<Verdict> verdicts,
  5: optional set<string> tags,      /* the task has all of these */
  6: optional i64 added_from,        /* inclusive */
  7: optional i64 added_before,      /* exclusive */
  8: optional string language,
  9: optional string executor,
  10: optional bool oldest_first,    /* default: newest first */
  11: optional bool done
}

struct Page {
  1: required list<TaskInfo> tasks,
  2: optional string cursor          /* for the next page; unset on the last */
}

/* ---------------------------------------------------------------- report */

/* An executor's description of itself. Sent when it changes, and when asked. */
struct Facts {
  1: optional map<string, string> languages, /* name -> version; those whose self-test passed */
  2: optional i32 slots,
  3: optional string version,                /* of oj */
  4: optional string address,
  5: optional string state,                  /* 'ok', 'draining', 'sick' */
  6: optional string message,                /* why it is sick */
  7: optional map<string, string> system     /* kernel, cores, memory, cgroup... */
}

/* A task that the executor has in hand. */
struct Executing {
  1: required string id,
  2: required i32 attempt,
  3: optional Status status,                 /* COMPILING or RUNNING */
  4: optional i32 tests_done
}

/* A task that the executor has finished. `incarnation` is the one that was
 * given the task, which is an older one if the executor was restarted. */
struct Completed {
  1: required string id,
  2: required i32 attempt,
  3: required string incarnation,
  4: optional Result result,
  5: optional string give_back /* set instead of result: could not judge it, and why */
}

struct Assignment {
  1: required string id,
  2: required i32 attempt,
  3: required Task task
}

struct TaskRef {
  1: required string id,
  2: required i32 attempt
}

struct ReportReply {
  1: required list<TaskRef> cancel,   /* stop these; their results are not wanted */
  2: required list<Assignment> assign,
  3: required list<TaskRef> acknowledged, /* of `complete`: recorded or not wanted; forget them */
  4: optional bool drained,           /* an operator drained this executor */
  5: optional bool want_facts,        /* send facts with the next report */
  6: optional i32 lease_ms            /* report again well within this time while executing */
}

/* --------------------------------------------------------------- cluster */

struct ExecutorInfo {
  1: required string name,
  2: optional string incarnation,
  3: optional Facts facts,
  4: optional i64 report_time,
  5: optional i32 executing,
  6: optional bool drained,
  7: optional bool silent             /* its lease ran out */
}

struct JudicatorInfo {
  1: required string name,
  2: required string address,
  3: optional bool leader
}

struct Stats {
  1: required map<Status, i64> by_status,
  2: optional i64 queue,              /* pending and retrying */
  3: optional i64 oldest_pending_ms,  /* age of the oldest that waits */
  4: optional map<Verdict, i64> by_verdict,
  5: optional i64 executors,
  6: optional i64 slots,
  7: optional i64 executing
}

struct Version {
  1: required string oj,              /* package version of the judicator */
  2: required i32 protocol            /* raised when calls or fields are added */
}

/* ------------------------------------------------------------ exceptions */

/* The request is wrong and will be wrong again. */
exception InvalidRequest {
  1: required string message,
  2: optional string field            /* the offending one: 'tests[2].input.digest' */
}

exception NotFound {
  1: required string message,
  2: optional string id
}

exception TooLarge {
  1: required string message,
  2: optional string field,
  3: optional i64 limit_bytes
}

/* Not now: try again, here or at another judicator. */
exception Unavailable {
  1: required string message,
  2: optional i32 retry_ms
}

/* --------------------------------------------------------------- service */

service Judicator {
  /* Answers at once if this judicator can serve (database and etcd reachable). */
  void ping() throws (1: Unavailable unavailable)

  Version version()

  /* Accepts a task and returns its id. Once this returned, the task is on disk
   * on a majority of the judicators and will end with a result. */
  string add(1: Task task)
    throws (1: InvalidRequest invalid, 2: TooLarge large, 3: Unavailable unavailable)

  /* Accepts all or none; ids in the same order. */
  list<string> addMany(1: list<Task> tasks)
    throws (1: InvalidRequest invalid, 2: TooLarge large, 3: Unavailable unavailable)

  /* Ends a task that is not done. Returns true if this call cancelled it, false
   * if it was done already. */
  bool cancel(1: string id)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* `what`: a sum of GET_*. */
  TaskInfo get(1: string id, 2: i32 what)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* As get, but answers only when the status is not (any longer) known_status
   * (where a client can leave that unset, no change but the last one counts),
   * or, if known_tests_done is given and not negative, when more tests are
   * done, or when the task is done, or after wait_ms. */
  TaskInfo wait(1: string id, 2: Status known_status, 3: i32 wait_ms, 4: i32 what,
                5: i32 known_tests_done = -1)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* One page of summaries. `cursor` is that of the page before, or empty. */
  Page search(1: Conditions conditions, 2: string cursor, 3: i32 limit)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* Those of the digests that are stored. Asking also keeps them from being
   * collected as garbage for an hour, time enough to add a task. */
  set<string> hasBlobs(1: set<string> digests)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* One piece of a blob, from offset 0 on, in order, all to one judicator; with
   * `last` the blob is checked against its digest and stored. Returns the next
   * offset expected, so that an interrupted sender knows where to go on (0:
   * from the start). A blob that is stored already returns its length. */
  i64 putBlob(1: string digest, 2: i64 offset, 3: binary data, 4: bool last)
    throws (1: InvalidRequest invalid, 2: TooLarge large, 3: Unavailable unavailable)

  /* At most `length` (and CHUNK_BYTES) bytes from `offset`; empty past the end. */
  binary getBlob(1: string digest, 2: i64 offset, 3: i32 length)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* An executor's report; see docs/protocol.md.
   * `number` counts the reports of this incarnation from 1. `settled` says that
   * each report up to that number was answered or given up, so that a task
   * assigned by one of those and not listed here is not in hand. */
  ReportReply report(1: string executor, 2: string incarnation,
                     3: list<Completed> complete, 4: list<Executing> executing,
                     5: i32 vacant, 6: Facts facts, 7: i32 wait_ms,
                     8: i64 number, 9: i64 settled)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  list<ExecutorInfo> executors() throws (1: Unavailable unavailable)
  list<JudicatorInfo> judicators() throws (1: Unavailable unavailable)
  Stats stats() throws (1: Unavailable unavailable)

  /* Takes an executor out of service (it finishes what it runs) or back in. */
  void drain(1: string executor, 2: bool on)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)
}
