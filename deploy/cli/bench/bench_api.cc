#include "deploy/cli/bench/bench_api.h"

#include "common/check.h"

namespace tandem {
namespace {

constexpr BenchBackend kBackends[] = {
    {"openai", BenchApi::kCompletions, "/v1/completions"},
    {"vllm", BenchApi::kCompletions, "/v1/completions"},
    {"openai-chat", BenchApi::kChat, "/v1/chat/completions"},
    {"openai-embeddings", BenchApi::kEmbeddings, "/v1/embeddings"},
    {"vllm-pooling", BenchApi::kPooling, "/pooling"},
    {"vllm-rerank", BenchApi::kRerank, "/v1/rerank"},
};

}  // namespace

std::span<const BenchBackend> BenchBackends() { return kBackends; }

const BenchBackend& BackendOf(std::string_view name) {
  for (const BenchBackend& backend : kBackends) {
    if (backend.name == name) return backend;
  }
  CHECK(false) << name;
  return kBackends[0];
}

}  // namespace tandem
