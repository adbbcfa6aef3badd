#include "frontend/processing/torch_tensor.h"

#include <cstring>
#include <random>

#include <catch2/catch.hpp>

#include "common/read_file.h"

namespace tandem {
namespace {

std::string Recorded(const std::string& name) {
  auto file =
      ReadFile(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/torch/" + name + ".pt", 1 << 16);
  REQUIRE(file.ok());
  return *file;
}

std::string MessageOf(std::string_view file) {
  const auto tensor = ReadTorchTensor(file);
  return tensor.ok() ? "" : tensor.status().message();
}

const std::vector<float> kValues = {-1, -0.75f, -0.5f, -0.25f, 0, 0.25f};

TEST_CASE("TorchTensor: matrices of three float types, and a parameter, are read") {
  for (const char* name : {"float32", "parameter"}) {
    const auto tensor = ReadTorchTensor(Recorded(name));
    REQUIRE(tensor.ok());
    CHECK(tensor->dtype == "float32");
    CHECK(tensor->num_rows == 2);
    CHECK(tensor->num_columns == 3);
    REQUIRE(tensor->data.size() == 24);
    CHECK(std::memcmp(tensor->data.data(), kValues.data(), 24) == 0);
  }
  const auto half = ReadTorchTensor(Recorded("float16_batch_of_one"));
  REQUIRE(half.ok());
  CHECK(half->dtype == "float16");
  CHECK(half->num_rows == 2);
  CHECK(half->data.substr(0, 4) == std::string("\x00\xbc\x00\xba", 4));
  const auto brain = ReadTorchTensor(Recorded("bfloat16"));
  REQUIRE(brain.ok());
  CHECK(brain->dtype == "bfloat16");
  CHECK(brain->data.substr(0, 4) == std::string("\x80\xbf\x40\xbf", 4));
}

TEST_CASE("TorchTensor: what is no dense matrix of floats is refused with the reason") {
  CHECK(MessageOf(Recorded("int64")) == "a tensor must be of float32, float16 or bfloat16");
  CHECK(MessageOf(Recorded("flat")) == "a tensor must have two dimensions, tokens and hidden size");
  CHECK(MessageOf(Recorded("no_rows")) == "a tensor must have between 1 and 2^30 numbers");
  CHECK(MessageOf(Recorded("transposed")).starts_with("a tensor must be contiguous"));
  CHECK(MessageOf(Recorded("offset")).starts_with("a tensor must be contiguous"));
  CHECK(MessageOf(Recorded("dictionary")) == "not a file of torch.save with one dense tensor");
  CHECK(MessageOf(Recorded("sparse")) == "not a file of torch.save with one dense tensor");
  CHECK(MessageOf(Recorded("legacy")) == "not a ZIP archive as torch.save writes it");
  CHECK(MessageOf("") == "not a ZIP archive as torch.save writes it");
}

// Of damaged bytes only the numbers themselves may be read as something else.
TEST_CASE("TorchTensor: cut and changed files are refused or read, and nothing else") {
  const std::string file = Recorded("float32");
  for (size_t size = 0; size < file.size(); ++size) CHECK(!MessageOf(file.substr(0, size)).empty());
  const uint32_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::string changed = file;
    for (uint32_t n = random() % 4 + 1; n > 0; --n) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    const auto tensor = ReadTorchTensor(changed);
    if (tensor.ok()) CHECK(tensor->data.size() <= changed.size());
  }
}

// Remembered items are copied: each level of this one would be 200 times the level before.
TEST_CASE("TorchTensor: a description that grows without end is refused") {
  std::string file = Recorded("float32");
  const size_t at = file.find("ctorch._utils");
  REQUIRE(at != std::string::npos);
  std::string bomb = "K\x01q";
  bomb.push_back('\0');
  for (char level = 0; level < 5; ++level) {
    bomb += '(';
    for (int i = 0; i < 20; ++i) bomb += std::string("h") + level;
    bomb += "tq";
    bomb.push_back(static_cast<char>(level + 1));
  }
  REQUIRE(bomb.size() < 300);
  file.replace(at, std::min<size_t>(bomb.size(), 150), bomb.substr(0, 150));
  CHECK(MessageOf(file) == "not a file of torch.save with one dense tensor");
}

// Numbers of 16 and 32 bits of a ZIP record, the others of which are not read.
void Put(std::string* record, size_t at, size_t number) {
  for (size_t i = 0; i < 4; ++i) (*record)[at + i] = static_cast<char>(number >> 8 * i);
}

std::string Archive(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string archive, directory;
  for (const auto& [name, data] : files) {
    std::string local = "PK\3\4" + std::string(26, '\0');
    std::string central = "PK\1\2" + std::string(42, '\0');
    Put(&local, 26, name.size());
    Put(&central, 20, data.size());
    Put(&central, 24, data.size());
    Put(&central, 28, name.size());
    Put(&central, 42, archive.size());
    archive.append(local).append(name).append(data);
    directory.append(central).append(name);
  }
  std::string end = "PK\5\6" + std::string(18, '\0');
  Put(&end, 10, files.size());
  Put(&end, 16, archive.size());
  return archive + directory + end;
}

// Of [2, 3] numbers that are in a file of this name.
std::string TensorIn(const std::string& key) {
  std::string size(4, '\0');
  Put(&size, 0, key.size());
  const std::string pickle = "\x80\2ctorch._utils\n_rebuild_tensor_v2\n((X\7" +
                             std::string(3, '\0') + "storagectorch\nFloatStorage\nX" + size + key +
                             "X\3" + std::string(3, '\0') + "cpuK\6tQK" + std::string(1, '\0') +
                             "K\2K\3\x86K\3K\1\x86\x89NtR.";
  return Archive({{"a/data.pkl", pickle}, {"a/data/" + key, std::string(24, 'x')}});
}

// An item that is remembered or repeated has copies of all its texts.
TEST_CASE("TorchTensor: names are short") {
  CHECK(MessageOf(TensorIn("0")) == "");
  CHECK(MessageOf(TensorIn(std::string(256, 'k'))) == "");
  CHECK(MessageOf(TensorIn(std::string(257, 'k'))) ==
        "not a file of torch.save with one dense tensor");
}

}  // namespace
}  // namespace tandem
