// Catch2's header, for sources of tests that are compiled several at a time (cmake/unity.cmake):
// its CHECK replaces common/check.h's at each place where a source includes it, not at the first
// only. No #pragma once.
#include_next <catch2/catch.hpp>
#undef CHECK
#define CHECK(...) \
  INTERNAL_CATCH_TEST("CHECK", Catch::ResultDisposition::ContinueOnFailure, __VA_ARGS__)
#define CATCH_VERSION_MAJOR 2
