#pragma once

// The APIs that `tandem bench serve` can load, by the names of --backend. Pure.

#include <span>
#include <string>
#include <string_view>

namespace tandem {

enum class BenchApi { kCompletions, kChat, kEmbeddings, kPooling, kRerank };

struct BenchBackend {
  std::string_view name;
  BenchApi api;
  std::string_view path;
};

std::span<const BenchBackend> BenchBackends();
// REQUIRES: one of these names.
const BenchBackend& BackendOf(std::string_view name);

// Texts become vectors or scores: the response comes in one piece and has no tokens.
inline bool IsPooled(BenchApi api) {
  return api != BenchApi::kCompletions && api != BenchApi::kChat;
}
inline bool IsPooled(std::string_view backend) { return IsPooled(BackendOf(backend).api); }

}  // namespace tandem
