#pragma once

// CHECK(condition) << "values"; for our own mistakes only: prints the place, the condition and the
// values, then aborts, in release builds too. DCHECK is for kernel loops and not in release builds.
// Thread: any. Bad input, full queues and dead peers are a Status, never a CHECK.

#include <sstream>

#ifdef CATCH_VERSION_MAJOR
#error "Catch2 has a CHECK of its own: tests include <catch2/catch.hpp> after all project headers"
#endif

namespace tandem::internal {

// Collects the message and aborts when destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace tandem::internal

#define CHECK(condition)                \
  (__builtin_expect(!!(condition), 1))  \
      ? (void)0                         \
      : ::tandem::internal::Voidify() & \
            ::tandem::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define CHECK_OP(a, op, b) CHECK((a)op(b)) << (a) << " vs " << (b) << " "
#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP(a, !=, b)
#define CHECK_LE(a, b) CHECK_OP(a, <=, b)
#define CHECK_LT(a, b) CHECK_OP(a, <, b)
#define CHECK_GE(a, b) CHECK_OP(a, >=, b)
#define CHECK_GT(a, b) CHECK_OP(a, >, b)

#ifdef NDEBUG
#define DCHECK(condition) CHECK(true || (condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
