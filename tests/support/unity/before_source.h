// Comes before each source of a test that is compiled with others (cmake/unity.cmake): the headers
// of the project that it includes have the CHECK of common/check.h, until it includes Catch2's. No
// #pragma once.
#undef CATCH_VERSION_MAJOR
#undef CHECK
#define CHECK(condition)                \
  (__builtin_expect(!!(condition), 1))  \
      ? (void)0                         \
      : ::tandem::internal::Voidify() & \
            ::tandem::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
