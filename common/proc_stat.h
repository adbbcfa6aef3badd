#pragma once

// The file stat that the kernel has of a process and of each thread; proc(5). Pure; any thread.

#include <cstddef>
#include <string_view>
#include <vector>

namespace tandem {

// Fields by proc(5)'s numbers, of which the second, the name, may hold anything.
inline constexpr size_t kFirstStatField = 3;

// From the third on, into `stat`; empty: it is no such text.
std::vector<std::string_view> StatFields(std::string_view stat);

}  // namespace tandem
