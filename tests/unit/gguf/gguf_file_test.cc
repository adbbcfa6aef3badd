#include "gguf/gguf_file.h"

#include <string>
#include <vector>

#include "gguf/end_tokens.h"
#include "kernels/block_format.h"
#include "tests/support/files/gguf_bytes.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;

constexpr uint32_t kF32 = 0, kQ4_0 = 2;

std::string RefusalOf(const std::string& bytes) {
  const TempFolder folder;
  folder.Write("a.gguf", bytes);
  return std::string(GgufFile::Open(folder.PathOf("a.gguf")).status().message());
}

std::string RefusalOf(const GgufBytes& bytes) { return RefusalOf(bytes.Build()); }

TEST_CASE("GGUF: keys and tensors of a file") {
  const TempFolder folder;
  GgufBytes bytes;
  bytes.String("general.name", "a model")
      .Integer("count", 7)
      .Float("rate", 0.5f)
      .Bool("flag", true)
      .Strings("words", {"a", "", "\xE2\x82\xAC"})
      .Floats("numbers", {1, -2})
      .Integers("ids", {3, -1})
      .Raw("nested", 9,
           RawBytes(uint32_t{9}) + RawBytes(uint64_t{1}) + RawBytes(uint32_t{0}) +
               RawBytes(uint64_t{2}) + "ab")
      .Tensor("m", kF32, {2, 3}, std::string(24, '\1'))
      .Tensor("q", kQ4_0, {32}, std::string(18, '\2'));
  folder.Write("a.gguf", bytes.Build());
  const auto file = GgufFile::Open(folder.PathOf("a.gguf"));
  REQUIRE(file.ok());
  const GgufMetadata& metadata = (*file)->metadata();
  CHECK(*metadata.String("general.name", "") == "a model");
  CHECK(*metadata.Integer("count", 0) == 7);
  CHECK(*metadata.Integer("absent", 5) == 5);
  CHECK(*metadata.Number("rate", 0) == 0.5);
  CHECK(*metadata.Number("count", 0) == 7);
  CHECK(*metadata.Bool("flag", false));
  CHECK(*metadata.Strings("words") == std::vector<std::string_view>{"a", "", "\xE2\x82\xAC"});
  CHECK(*metadata.Numbers("numbers") == std::vector<double>{1, -2});
  CHECK(*metadata.Integers("ids") == std::vector<int64_t>{3, -1});
  CHECK(metadata.Strings("absent")->empty());
  CHECK_THAT(metadata.Integer("rate", 0).status().message(), Contains("key rate must be"));
  CHECK_FALSE(metadata.Integer("ids", 0).ok());
  CHECK_FALSE(metadata.Strings("ids").ok());
  CHECK_FALSE(metadata.Integers("count").ok());
  CHECK_FALSE(metadata.Bool("count", true).ok());
  const GgufTensor* const matrix = (*file)->Find("m");
  REQUIRE(matrix != nullptr);
  CHECK(matrix->shape == std::vector<int64_t>{3, 2});
  CHECK(matrix->bytes.size() == 24);
  CHECK(matrix->type->name == "F32");
  CHECK((*file)->Find("q")->bytes.size() == 18);
  CHECK((*file)->Find("q")->bytes[0] == std::byte{2});
  CHECK((*file)->Find("n") == nullptr);
}

TEST_CASE("GGUF: what is not such a file is refused") {
  CHECK_THAT(RefusalOf("GGML and more text"), Contains("not a GGUF file"));
  CHECK_THAT(RefusalOf("GGU"), Contains("not a GGUF file"));
  CHECK_THAT(RefusalOf("GGUF" + RawBytes(uint32_t{1}) + std::string(64, '\0')),
             Contains("GGUF version 1 is not supported"));
  CHECK_THAT(RefusalOf("GGUF" + RawBytes(uint32_t{3} << 24) + std::string(64, '\0')),
             Contains("big-endian"));
  CHECK_THAT(RefusalOf("GGUF" + RawBytes(uint32_t{3}) + RawBytes(uint64_t{1} << 60) +
                       RawBytes(uint64_t{0})),
             Contains("truncated"));
  CHECK_THAT(RefusalOf(GgufBytes().Integer("general.alignment", 24)),
             Contains("general.alignment is 24"));
  CHECK_THAT(RefusalOf(GgufBytes().Integer("general.alignment", 0)), Contains("power of two"));
  CHECK_THAT(RefusalOf(GgufBytes().Integer("a", 1).Integer("a", 2)),
             Contains("key a occurs twice"));
  CHECK_THAT(RefusalOf(GgufBytes().Integer("\xFF", 1)), Contains("must be UTF-8"));
  CHECK_THAT(RefusalOf(GgufBytes().Raw("a", 13, "12345678")), Contains("unknown value type 13"));
  CHECK_THAT(RefusalOf(GgufBytes().Raw("a", 8, RawBytes(~uint64_t{0}))), Contains("key a"));
  CHECK_THAT(
      RefusalOf(GgufBytes().Raw("a", 9, RawBytes(uint32_t{12}) + RawBytes(uint64_t{1} << 61))),
      Contains("its array of 2305843009213693952"));
  std::string deep;
  for (int i = 0; i < 9; ++i) deep += RawBytes(uint32_t{9}) + RawBytes(uint64_t{1});
  CHECK_THAT(RefusalOf(GgufBytes().Raw("a", 9, deep)), Contains("nested too deep"));
  CHECK_THAT(RefusalOf(GgufBytes().Raw("a", 9, RawBytes(uint32_t{77}) + RawBytes(uint64_t{1}))),
             Contains("unknown value type 77"));
}

TEST_CASE("GGUF: tensors that do not fit are refused by name") {
  const auto refusal = [](uint64_t offset, uint32_t type, const std::vector<uint64_t>& sizes) {
    return RefusalOf(GgufBytes()
                         .Tensor("a", kF32, {8}, std::string(32, '\0'))
                         .TensorAt(offset, "t", type, sizes));
  };
  CHECK_THAT(refusal(32, kF32, {1}), Contains("outside the 32 bytes"));
  CHECK_THAT(refusal(~uint64_t{0} - 31, kF32, {8}), Contains("outside the 32 bytes"));
  CHECK_THAT(refusal(0, kF32, {8}), Contains("overlap"));
  CHECK_THAT(refusal(4, kF32, {1}), Contains("no multiple of the alignment 32"));
  CHECK_THAT(refusal(0, 99, {8}), Contains("tensor t: has the unknown type 99"));
  CHECK_THAT(refusal(0, kQ4_0, {33}), Contains("tensor t: has rows of 33"));
  CHECK_THAT(refusal(0, kF32, {}), Contains("has 0 dimensions"));
  CHECK_THAT(refusal(0, kF32, {1, 1, 1, 1, 1}), Contains("has 5 dimensions"));
  CHECK_THAT(refusal(0, kF32, {0}), Contains("bad shape"));
  CHECK_THAT(refusal(0, kF32, {uint64_t{1} << 32, uint64_t{1} << 31}), Contains("bad shape"));
  CHECK_THAT(refusal(0, kF32, {uint64_t{1} << 62}), Contains("bad shape"));
  CHECK_THAT(RefusalOf(GgufBytes().Tensor("a", kF32, {1}, "0123").Tensor("a", kF32, {1}, "0123")),
             Contains("tensor a occurs twice"));
}

// A tensor whose type is a smaller one than its bytes have leaves a gap.
TEST_CASE("GGUF: each tensor begins where the one before it ends") {
  const auto refusal = [](uint64_t first, uint64_t second) {
    return RefusalOf(
        GgufBytes().TensorAt(first, "a", kF32, {9}).TensorAt(second, "t", kF32, {8}).Build() +
        std::string(160, '\0'));
  };
  CHECK(refusal(0, 64).empty());
  CHECK_THAT(refusal(0, 96), Contains("tensor t: begins at 96, the one before it ends at 64"));
  CHECK_THAT(refusal(32, 96), Contains("tensor a: begins at 32, the one before it ends at 0"));
}

TEST_CASE("GGUF: every truncated file is refused") {
  GgufBytes bytes;
  bytes.String("s", "text").Strings("w", {"a", "bc"}).Tensor("m", kF32, {8}, std::string(32, 'x'));
  const std::string whole = bytes.Build();
  REQUIRE(RefusalOf(whole).empty());
  for (size_t size = 1; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(RefusalOf(whole.substr(0, size)).empty());
  }
}

TEST_CASE("GGUF: a split model is opened by its first part") {
  const TempFolder folder;
  const auto part = [](uint32_t number, const std::string& tensor) {
    GgufBytes bytes;
    bytes.Integer("split.no", number).Integer("split.count", 2).Integer("split.tensors.count", 2);
    if (number == 0) bytes.String("general.name", "first");
    return bytes.Tensor(tensor, kF32, {8}, std::string(32, 'x')).Build();
  };
  const std::string first = "m-00001-of-00002.gguf", second = "m-00002-of-00002.gguf";
  folder.Write(first, part(0, "a"));
  CHECK_THAT(GgufFile::Open(folder.PathOf(first)).status().message(), Contains(second));
  folder.Write(second, part(1, "b"));
  const auto file = GgufFile::Open(folder.PathOf(first));
  REQUIRE(file.ok());
  CHECK((*file)->Find("a") != nullptr);
  CHECK((*file)->Find("b") != nullptr);
  CHECK((*file)->metadata().Has("general.name"));
  CHECK(*FindGgufFile(folder.path()) == folder.PathOf(first));
  CHECK_THAT(GgufFile::Open(folder.PathOf(second)).status().message(),
             Contains("name the first one, which ends with -00001-of-00002.gguf"));
  folder.Write(second, part(0, "b"));
  CHECK_THAT(GgufFile::Open(folder.PathOf(first)).status().message(),
             Contains("is part 1 of 2, must be part 2 of 2"));
  folder.Write(second, part(1, "a"));
  CHECK_THAT(GgufFile::Open(folder.PathOf(first)).status().message(), Contains("occurs twice"));
}

TEST_CASE("GGUF: which path is such a model") {
  const TempFolder folder;
  const std::string bytes = GgufBytes().String("a", "b").Build();
  CHECK(FindGgufFile(folder.path())->empty());
  folder.Write("x.gguf", bytes);
  CHECK(*FindGgufFile(folder.path()) == folder.PathOf("x.gguf"));
  CHECK(*FindGgufFile(folder.PathOf("x.gguf")) == folder.PathOf("x.gguf"));
  folder.Write("blob", bytes);
  CHECK(*FindGgufFile(folder.PathOf("blob")) == folder.PathOf("blob"));
  folder.Write("text.gguf", "no such file");
  CHECK_THAT(FindGgufFile(folder.PathOf("text.gguf")).status().message(),
             Contains("not a GGUF file"));
  CHECK_THAT(FindGgufFile(folder.PathOf("absent.gguf")).status().message(),
             Contains("no such file"));
  folder.Write("pointer.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
  CHECK_THAT(FindGgufFile(folder.PathOf("pointer.gguf")).status().message(),
             Contains("pointer.gguf: is a Git LFS pointer"));
  CHECK_THAT(FindGgufFile(folder.path()).status().message(),
             Contains("both pointer.gguf and text.gguf are there"));
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors", "");
  CHECK(FindGgufFile(folder.path())->empty());
}

TEST_CASE("GGUF: a folder's only model, beside its config and projector") {
  const TempFolder folder;
  const std::string bytes = GgufBytes().String("a", "b").Build();
  folder.Write("config.json", "{}");
  CHECK(FindGgufFile(folder.path())->empty());
  for (const char* name : {"mmproj-F16.gguf", "imatrix.gguf", "a-Q4_0.gguf"}) {
    folder.Write(name, bytes);
  }
  CHECK(*FindGgufFile(folder.path()) == folder.PathOf("a-Q4_0.gguf"));
}

TEST_CASE("GGUF: the tokens that end an output") {
  const auto end_tokens = [](GgufBytes bytes, const std::string& turn_end = "<end_of_turn>") {
    const TempFolder folder;
    bytes.Strings("tokenizer.ggml.tokens", {"a", "</s>", turn_end, "<|im_end|>"});
    bytes.Integers("tokenizer.ggml.token_type", {1, 3, 3, 1});
    folder.Write("a.gguf", bytes.Build());
    const auto file = GgufFile::Open(folder.PathOf("a.gguf"));
    REQUIRE(file.ok());
    return GgufEndTokens((*file)->metadata());
  };
  const std::string eos = "tokenizer.ggml.eos_token_id", eot = "tokenizer.ggml.eot_token_id";
  CHECK(*end_tokens(GgufBytes().Integer(eos, 1)) == std::vector<TokenId>{1, 2});
  CHECK(*end_tokens(GgufBytes().Integer(eos, 1).Integer(eot, 0)) == std::vector<TokenId>{1, 0});
  CHECK(*end_tokens(GgufBytes().Integer(eot, 1).Integer(eos, 1)) == std::vector<TokenId>{1});
  CHECK(*end_tokens(GgufBytes().Integer(eos, 0), "<turn|>") == std::vector<TokenId>{0, 2});
  CHECK(*end_tokens(GgufBytes().Integer(eos, 1).Integer(eot, UINT32_MAX)) ==
        std::vector<TokenId>{1, 2});
  CHECK_THAT(end_tokens(GgufBytes().Integer(eos, 4)).status().message(),
             Contains("tokenizer.ggml.eos_token_id is 4, there are 4 tokens"));
}

TEST_CASE("GGUF: block formats have the file's sizes") {
  int num_found = 0;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufTensorType* const type = FindGgufTensorType(id);
    if (type == nullptr) continue;
    const BlockFormat* const format = FindBlockFormat(type->name);
    if (format == nullptr) continue;
    CAPTURE(format->name);
    CHECK(format->size == type->block_size);
    CHECK(format->num_bytes == type->block_bytes);
    ++num_found;
  }
  CHECK(num_found == 13);
}

}  // namespace
}  // namespace tandem
