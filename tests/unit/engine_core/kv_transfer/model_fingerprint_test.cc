#include "engine_core/kv_transfer/model_fingerprint.h"

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string Of(const std::string& model, const std::string& facts = "bfloat16") {
  const auto fingerprint = ModelFingerprint(model, facts);
  return fingerprint.ok() ? *fingerprint : fingerprint.status().ToString();
}

TEST_CASE("model fingerprint: the same files make the same one, in whatever folder") {
  const TempFolder one, two;
  for (const TempFolder* folder : {&one, &two}) {
    folder->Write("config.json", "{}");
    folder->Write("model.safetensors", std::string(1'000'000, 'w'));
  }
  two.Write("README.md", "not a weight");
  CHECK(Of(one.path()).size() == 16);
  CHECK(Of(one.path()) == Of(two.path()));
  CHECK(Of(one.path(), "float32") != Of(one.path()));
}

TEST_CASE("model fingerprint: other weights of the same size make another one") {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors", std::string(1'000'000, 'w'));
  const std::string before = Of(folder.path());
  std::string weights(1'000'000, 'w');
  std::fill(weights.begin() + 500'000, weights.begin() + 530'000, 'x');
  folder.Write("model.safetensors", weights);
  CHECK(Of(folder.path()) != before);
}

TEST_CASE("model fingerprint: a model may be one file, and one that is missing is an error") {
  const TempFolder folder;
  folder.Write("model.gguf", "GGUF");
  folder.Write("other.gguf", "GGUG");
  CHECK(Of(folder.PathOf("model.gguf")).size() == 16);
  CHECK(Of(folder.PathOf("model.gguf")) != Of(folder.PathOf("other.gguf")));
  CHECK(ModelFingerprint(folder.PathOf("none"), "").status().code() == StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
