/* Counts the calls that change files below one folder, and makes one of them fail or kill.
 *
 * Preload this library (LD_PRELOAD), and every program and library of the process goes through it:
 * Python, HDF5, Arrow, the native core. Call faults_arm() to begin. A file that is already open
 * counts by the name that /proc tells. What a program writes to a mapped file is no call, and does
 * not count; nor does what the C library writes for itself (fwrite), which nobody here uses.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* What happens at the chosen call. A positive number is the errno it fails with. A disk that is
 * full stays full: after ENOSPC, all calls that need room fail with it. */
enum { NOTHING = 0, KILL_BEFORE = -1, KILL_AFTER = -2, KILL_WITHIN = -3, SHORT = -4 };

static char folder[PATH_MAX];
static size_t folder_length;
static int log_file = -1;
static atomic_long seen;
static long chosen;
static int action;

/* Begin to count calls below `below` (with no slash at its end), and append a line for each to
 * the file `log`. The call with the number `number`, from 1, meets `what`. */
void faults_arm(const char *below, const char *log, long number, int what) {
  snprintf(folder, sizeof folder, "%s", below);
  atomic_store(&seen, 0);
  chosen = number;
  action = what;
  log_file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  folder_length = strlen(folder);
}

/* Stop counting. */
void faults_disarm(void) {
  folder_length = 0;
  if (log_file >= 0) syscall(SYS_close, log_file);
  log_file = -1;
}

/* Write where a path given to the system leads: absolute, or in the folder `at`. */
static const char *place(char *out, int at, const char *path) {
  char link[64], base[PATH_MAX] = "";
  if (path == NULL || path[0] == '/') return path;
  if (at == AT_FDCWD) {
    if (syscall(SYS_getcwd, base, sizeof base) < 0) return NULL;
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, base, sizeof base - 1);
    if (length < 0) return NULL;
    base[length] = 0;
  }
  if (path[0] == 0) return strcpy(out, base);
  snprintf(out, PATH_MAX, "%.2000s/%.2000s", base, path);
  return out;
}

static int counts(const char *path) {
  return path != NULL && strncmp(path, folder, folder_length) == 0 &&
         (path[folder_length] == '/' || path[folder_length] == 0);
}

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

static int needs_room(const char *name) {
  static const char *const names[] = {"write", "pwrite", "writev",   "pwritev", "sendfile",
                                      "copy",  "create", "allocate", "mkdir",   "link"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i]) == 0) return 1;
  return 0;
}

/* Count a call, and return what shall happen to it. */
static int meet(const char *name, int at, const char *path) {
  char buffer[PATH_MAX], line[PATH_MAX + 64];
  if (folder_length == 0) return NOTHING;
  int before = errno;
  const char *whole = place(buffer, at, path);
  errno = before;
  if (!counts(whole)) return NOTHING;
  long number = atomic_fetch_add(&seen, 1) + 1;
  int full = action == ENOSPC && number > chosen && needs_room(name);
  int mine = number == chosen || full ? action : NOTHING;
  int length = snprintf(line, sizeof line, "%s %s%s\n", name,
                        whole[folder_length] ? whole + folder_length + 1 : ".", mine ? " *" : "");
  syscall(SYS_write, log_file, line, (size_t)length);
  errno = before;
  if (mine == KILL_BEFORE) die();
  return mine;
}

#define REAL(name, result, ...)                    \
  static result (*real)(__VA_ARGS__);              \
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, name)

/* Do what was met: fail, or make the call and die after it. */
#define DO(met, call)                     \
  do {                                    \
    int meeting = (met);                  \
    if (meeting > 0) {                    \
      errno = meeting;                    \
      return -1;                          \
    }                                     \
    __typeof__(call) answer = (call);     \
    if (meeting == KILL_AFTER) die();     \
    return answer;                        \
  } while (0)

/* The same for a call that may do half of its work. */
#define DO_PART(met, size, call, part)                            \
  do {                                                            \
    int now = (met);                                              \
    if ((now == SHORT || now == KILL_WITHIN) && (size) > 1) {     \
      ssize_t half = (part);                                      \
      if (now == KILL_WITHIN) die();                              \
      return half;                                                \
    }                                                             \
    if (now == KILL_WITHIN) die();                                \
    DO(now == SHORT ? NOTHING : now, call);                       \
  } while (0)

/* Bytes. */

ssize_t write(int fd, const void *data, size_t size) {
  REAL("write", ssize_t, int, const void *, size_t);
  DO_PART(meet("write", fd, ""), size, real(fd, data, size), real(fd, data, size / 2));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  REAL("pwrite64", ssize_t, int, const void *, size_t, off64_t);
  DO_PART(meet("pwrite", fd, ""), size, real(fd, data, size, at), real(fd, data, size / 2, at));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

/* Half of a vector is its first buffer. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
  REAL("writev", ssize_t, int, const struct iovec *, int);
  DO_PART(meet("writev", fd, ""), count, real(fd, parts, count), real(fd, parts, 1));
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  REAL("pwritev64", ssize_t, int, const struct iovec *, int, off64_t);
  DO_PART(meet("pwritev", fd, ""), count, real(fd, parts, count, at), real(fd, parts, 1, at));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  return pwritev64(fd, parts, count, at);
}

ssize_t sendfile64(int out, int in, off64_t *at, size_t size) {
  REAL("sendfile64", ssize_t, int, int, off64_t *, size_t);
  DO_PART(meet("sendfile", out, ""), size, real(out, in, at, size), real(out, in, at, size / 2));
}

ssize_t sendfile(int out, int in, off_t *at, size_t size) { return sendfile64(out, in, at, size); }

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
  REAL("copy_file_range", ssize_t, int, off64_t *, int, off64_t *, size_t, unsigned);
  DO_PART(meet("copy", out, ""), size, real(in, from, out, to, size, flags),
          real(in, from, out, to, size / 2, flags));
}

int fsync(int fd) {
  REAL("fsync", int, int);
  DO(meet("fsync", fd, ""), real(fd));
}

int fdatasync(int fd) {
  REAL("fdatasync", int, int);
  DO(meet("fsync", fd, ""), real(fd));
}

int ftruncate64(int fd, off64_t size) {
  REAL("ftruncate64", int, int, off64_t);
  DO(meet("truncate", fd, ""), real(fd, size));
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char *path, off64_t size) {
  REAL("truncate64", int, const char *, off64_t);
  DO(meet("truncate", AT_FDCWD, path), real(path, size));
}

int truncate(const char *path, off_t size) { return truncate64(path, size); }

int fallocate64(int fd, int mode, off64_t at, off64_t size) {
  REAL("fallocate64", int, int, int, off64_t, off64_t);
  DO(meet("allocate", fd, ""), real(fd, mode, at, size));
}

int fallocate(int fd, int mode, off_t at, off_t size) { return fallocate64(fd, mode, at, size); }

/* This one returns the error. */
int posix_fallocate64(int fd, off64_t at, off64_t size) {
  REAL("posix_fallocate64", int, int, off64_t, off64_t);
  int met = meet("allocate", fd, "");
  if (met > 0) return met;
  int answer = real(fd, at, size);
  if (met == KILL_AFTER || met == KILL_WITHIN) die();
  return answer;
}

int posix_fallocate(int fd, off_t at, off_t size) { return posix_fallocate64(fd, at, size); }

/* Names. Opening counts if it may create or empty the file. */

static int meet_open(int at, const char *path, int flags) {
  return flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE ? meet("create", at, path)
                                                                         : NOTHING;
}

static mode_t mode_of(int flags, va_list more) {
  return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

#define OPEN(name)                                         \
  int name(const char *path, int flags, ...) {             \
    REAL(#name, int, const char *, int, ...);              \
    va_list more;                                          \
    va_start(more, flags);                                 \
    mode_t mode = mode_of(flags, more);                    \
    va_end(more);                                          \
    DO(meet_open(AT_FDCWD, path, flags), real(path, flags, mode)); \
  }

#define OPEN_AT(name)                                      \
  int name(int at, const char *path, int flags, ...) {     \
    REAL(#name, int, int, const char *, int, ...);         \
    va_list more;                                          \
    va_start(more, flags);                                 \
    mode_t mode = mode_of(flags, more);                    \
    va_end(more);                                          \
    DO(meet_open(at, path, flags), real(at, path, flags, mode)); \
  }

OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)

int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat(const char *path, mode_t mode) { return creat64(path, mode); }

int rename(const char *from, const char *to) {
  REAL("rename", int, const char *, const char *);
  DO(meet("rename", AT_FDCWD, to), real(from, to));
}

int renameat(int in, const char *from, int at, const char *to) {
  REAL("renameat", int, int, const char *, int, const char *);
  DO(meet("rename", at, to), real(in, from, at, to));
}

int renameat2(int in, const char *from, int at, const char *to, unsigned flags) {
  REAL("renameat2", int, int, const char *, int, const char *, unsigned);
  DO(meet("rename", at, to), real(in, from, at, to, flags));
}

int unlink(const char *path) {
  REAL("unlink", int, const char *);
  DO(meet("unlink", AT_FDCWD, path), real(path));
}

int unlinkat(int at, const char *path, int flags) {
  REAL("unlinkat", int, int, const char *, int);
  DO(meet(flags & AT_REMOVEDIR ? "rmdir" : "unlink", at, path), real(at, path, flags));
}

int remove(const char *path) {
  REAL("remove", int, const char *);
  DO(meet("unlink", AT_FDCWD, path), real(path));
}

int rmdir(const char *path) {
  REAL("rmdir", int, const char *);
  DO(meet("rmdir", AT_FDCWD, path), real(path));
}

int mkdir(const char *path, mode_t mode) {
  REAL("mkdir", int, const char *, mode_t);
  DO(meet("mkdir", AT_FDCWD, path), real(path, mode));
}

int mkdirat(int at, const char *path, mode_t mode) {
  REAL("mkdirat", int, int, const char *, mode_t);
  DO(meet("mkdir", at, path), real(at, path, mode));
}

int link(const char *from, const char *to) {
  REAL("link", int, const char *, const char *);
  DO(meet("link", AT_FDCWD, to), real(from, to));
}

int linkat(int in, const char *from, int at, const char *to, int flags) {
  REAL("linkat", int, int, const char *, int, const char *, int);
  DO(meet("link", at, to), real(in, from, at, to, flags));
}

int symlink(const char *from, const char *to) {
  REAL("symlink", int, const char *, const char *);
  DO(meet("link", AT_FDCWD, to), real(from, to));
}

int chmod(const char *path, mode_t mode) {
  REAL("chmod", int, const char *, mode_t);
  DO(meet("chmod", AT_FDCWD, path), real(path, mode));
}

int fchmod(int fd, mode_t mode) {
  REAL("fchmod", int, int, mode_t);
  DO(meet("chmod", fd, ""), real(fd, mode));
}

int fchmodat(int at, const char *path, mode_t mode, int flags) {
  REAL("fchmodat", int, int, const char *, mode_t, int);
  DO(meet("chmod", at, path), real(at, path, mode, flags));
}

int utimensat(int at, const char *path, const struct timespec times[2], int flags) {
  REAL("utimensat", int, int, const char *, const struct timespec *, int);
  DO(meet("utime", at, path), real(at, path, times, flags));
}

int futimens(int fd, const struct timespec times[2]) {
  REAL("futimens", int, int, const struct timespec *);
  DO(meet("utime", fd, ""), real(fd, times));
}
