#include "engine_core/weights/safetensors.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

std::string FileBytes(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + header + data;
}

std::string Floats(std::initializer_list<float> values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

Status OpenError(const std::string& bytes) {
  const TempFolder folder;
  folder.Write("model.safetensors", bytes);
  const auto opened = OpenSafetensors(folder.path());
  REQUIRE_FALSE(opened.ok());
  CHECK_THAT(opened.status().message(), Contains("model.safetensors"));
  return opened.status();
}

TEST_CASE("safetensors: a tensor is read with its shape and values") {
  const TempFolder folder;
  folder.Write("model.safetensors",
               FileBytes(R"({"__metadata__":{"format":"pt"},)"
                         R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}})",
                         Floats({1, 2, 3, 4, 5})));
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto a = (*weights)->Get("a", 2, 2);
  REQUIRE(a.ok());
  CHECK(a->view().Row<float>(1)[0] == 3);
  const auto b = (*weights)->Get("b", 0, 1);
  REQUIRE(b.ok());
  CHECK(b->view().Data<float>()[0] == 5);
}

TEST_CASE("safetensors: float64 is read as float32") {
  const TempFolder folder;
  const double numbers[] = {1.5, -2, 0.1, 4};
  std::string bytes(sizeof numbers, '\0');
  std::memcpy(bytes.data(), numbers, sizeof numbers);
  folder.Write("model.safetensors",
               FileBytes(R"({"a":{"dtype":"F64","shape":[2,2,1],"data_offsets":[0,32]}})", bytes));
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto a = (*weights)->GetFromStack("a", 1, 2, 2, 1);
  REQUIRE(a.ok());
  CHECK(a->view().dtype == DType::kF32);
  CHECK(a->view().Row<float>(0)[0] == 0.1f);
  CHECK(a->view().Row<float>(1)[0] == 4);
  const auto stored = (*weights)->GetStored("a");
  REQUIRE(stored.ok());
  CHECK(FloatsOf(*stored) == std::vector<float>{1.5f, -2, 0.1f, 4});
}

TEST_CASE("safetensors: a matrix of a stack is read, other shapes are refused") {
  const TempFolder folder;
  folder.Write("model.safetensors",
               FileBytes(R"({"s":{"dtype":"F32","shape":[3,2,1],"data_offsets":[0,24]}})",
                         Floats({1, 2, 3, 4, 5, 6})));
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  CHECK((*weights)->Has("s"));
  CHECK_FALSE((*weights)->Has("t"));
  const auto last = (*weights)->GetFromStack("s", 2, 3, 2, 1);
  REQUIRE(last.ok());
  CHECK(last->view().Row<float>(0)[0] == 5);
  CHECK(last->view().Row<float>(1)[0] == 6);
  CHECK((*weights)->GetFromStack("t", 0, 3, 2, 1).status().code() == StatusCode::kNotFound);
  CHECK_THAT((*weights)->GetFromStack("s", 0, 2, 2, 1).status().message(),
             Contains("[3, 2, 1]") && Contains("[2, 2, 1]"));
  CHECK_THAT((*weights)->Get("s", 2, 1).status().message(), Contains("[3, 2, 1]"));
}

TEST_CASE("safetensors: data that is not aligned to its element size is copied") {
  const TempFolder folder;
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 4 != 1) header += ' ';
  folder.Write("model.safetensors", FileBytes(header, Floats({1.5f, -2})));
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto a = (*weights)->Get("a", 0, 2);
  REQUIRE(a.ok());
  CHECK(reinterpret_cast<uintptr_t>(a->view().data) % 4 == 0);
  CHECK(a->view().Data<float>()[1] == -2);
}

TEST_CASE("safetensors: errors name a missing tensor, a wrong shape and a wrong dtype") {
  const TempFolder folder;
  folder.Write("model.safetensors",
               FileBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("i":{"dtype":"I32","shape":[2],"data_offsets":[8,16]}})",
                         std::string(16, '\0')));
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto missing = (*weights)->Get("model.norm.weight", 0, 2);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().code() == StatusCode::kNotFound);
  CHECK_THAT(missing.status().message(), Contains("model.norm.weight"));
  CHECK_THAT((*weights)->Get("a", 1, 2).status().message(), Contains("[2]") && Contains("[1, 2]"));
  CHECK_THAT((*weights)->Get("i", 0, 2).status().message(), Contains("I32") && Contains("BF16"));
}

TEST_CASE("safetensors: the error for a broken file names it") {
  SECTION("empty") { CHECK_THAT(OpenError("").message(), Contains("empty")); }
  SECTION("shorter than a length") { CHECK_THAT(OpenError("abc").message(), Contains("shorter")); }
  SECTION("huge header") {
    CHECK_THAT(OpenError(std::string(8, '\xff') + "{}").message(), Contains("at most 100000000"));
  }
  SECTION("header longer than the file") {
    std::string bytes = FileBytes("{}", "");
    bytes[0] = 50;
    CHECK_THAT(OpenError(bytes).message(), Contains("truncated"));
  }
  SECTION("header is not JSON") {
    CHECK_THAT(OpenError(FileBytes("{\"a\":", "")).message(), Contains("JSON"));
  }
  SECTION("header is a list") {
    CHECK_THAT(OpenError(FileBytes("[1]", "")).message(), Contains("JSON object"));
  }
  SECTION("header nested a million deep") {
    CHECK_THAT(OpenError(FileBytes("{\"a\":" + std::string(1'000'000, '['), "")).message(),
               Contains("deep"));
  }
  SECTION("data is truncated") {
    const Status status =
        OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "1234"));
    CHECK(status.code() == StatusCode::kDataLoss);
    CHECK_THAT(status.message(), Contains("tensor a") && Contains("truncated"));
  }
  SECTION("offsets disagree with the shape") {
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
                                   std::string(16, '\0')))
                   .message(),
               Contains("[3]") && Contains("12"));
  }
  SECTION("offsets backwards") {
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})",
                                   std::string(16, '\0')))
                   .message(),
               Contains("data_offsets"));
  }
  SECTION("a shape whose product overflows") {
    CHECK_THAT(
        OpenError(
            FileBytes(
                R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
                ""))
            .message(),
        Contains("bad shape"));
  }
  SECTION("a negative dimension") {
    CHECK_THAT(
        OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"))
            .message(),
        Contains("bad shape"));
  }
  SECTION("overlap") {
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                   R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                                   std::string(16, '\0')))
                   .message(),
               Contains("overlap"));
  }
  SECTION("a gap, as a dtype of fewer bytes leaves one") {
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                   R"("b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]}})",
                                   std::string(12, '\0')))
                   .message(),
               Contains("tensor b begins at byte 8, the one before it ends at byte 4"));
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                   std::string(8, '\0')))
                   .message(),
               Contains("tensor a begins at byte 4, the one before it ends at byte 0"));
  }
  SECTION("a name twice") {
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                   R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                   std::string(8, '\0')))
                   .message(),
               Contains("header: key a occurs twice"));
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],)"
                                   R"("shape":[1]}})",
                                   std::string(4, '\0')))
                   .message(),
               Contains("header: key shape occurs twice"));
  }
  SECTION("unknown dtype") {
    CHECK_THAT(OpenError(FileBytes(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})",
                                   std::string(16, '\0')))
                   .message(),
               Contains("Q4"));
  }
}

TEST_CASE("safetensors: a file of a clone without git-lfs is named as one") {
  CHECK_THAT(OpenError("version https://git-lfs.github.com/spec/v1\noid sha256:1\n").message(),
             Contains("model.safetensors: is a Git LFS pointer, not the file itself"));
}

TEST_CASE("safetensors: keys of different tensors may be the same") {
  const TempFolder folder;
  folder.Write("model.safetensors",
               FileBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("dtype":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         Floats({1, 2})));
  CHECK(OpenSafetensors(folder.path()).ok());
}

TEST_CASE("safetensors: every truncation of a real file is an error") {
  std::ifstream in(std::string(TANDEM_GOLDEN_DIR) + "/models/llama_tied/model.safetensors",
                   std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  REQUIRE(whole.size() > 10'000);
  for (size_t size = 0; size < whole.size(); size += size < 2100 ? 41 : 9973) {
    CAPTURE(size);
    CHECK_FALSE(OpenError(whole.substr(0, size)).ok());
  }
}

TEST_CASE("safetensors: the index leads to the shards, which are checked against it") {
  const TempFolder folder;
  folder.Write("one.safetensors",
               FileBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", Floats({1})));
  folder.Write("two.safetensors",
               FileBytes(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", Floats({2})));
  const std::string index = "model.safetensors.index.json";
  SECTION("both are read") {
    folder.Write(index, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    const auto weights = OpenSafetensors(folder.path());
    REQUIRE(weights.ok());
    CHECK((*weights)->Get("b", 0, 1)->view().Data<float>()[0] == 2);
  }
  SECTION("a tensor that is not in its shard") {
    folder.Write(index, R"({"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})");
    CHECK_THAT(OpenSafetensors(folder.path()).status().message(),
               Contains("two.safetensors: does not contain c"));
  }
  SECTION("a tensor in two shards is that of the index") {
    folder.Write("more.safetensors",
                 FileBytes(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                           Floats({3, 4})));
    folder.Write(index, R"({"weight_map":{"c":"more.safetensors","b":"two.safetensors"}})");
    const auto weights = OpenSafetensors(folder.path());
    REQUIRE(weights.ok());
    CHECK((*weights)->Get("b", 0, 1)->view().Data<float>()[0] == 2);
    CHECK((*weights)->GetStored("b")->bytes().data() != (*weights)->GetStored("c")->bytes().data());
    CHECK((*weights)->Unread().empty());
    folder.Write(index, R"({"weight_map":{"c":"more.safetensors","b":"more.safetensors"}})");
    CHECK(OpenSafetensors(folder.path()).value()->Get("b", 0, 1)->view().Data<float>()[0] == 3);
  }
  SECTION("a tensor in two shards that the index does not name") {
    folder.Write("more.safetensors",
                 FileBytes(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                           R"("d":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                           Floats({3, 4, 5})));
    folder.Write(
        "also.safetensors",
        FileBytes(R"({"d":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", Floats({6})));
    folder.Write(index, R"({"weight_map":{"c":"more.safetensors","d":"also.safetensors"}})");
    const auto weights = OpenSafetensors(folder.path());
    REQUIRE(weights.ok());
    CHECK((*weights)->Get("b", 0, 1)->view().Data<float>()[0] == 3);  // it is there once
    folder.Write(index, R"({"weight_map":{"c":"more.safetensors","e":"two2.safetensors"}})");
    folder.Write("two2.safetensors",
                 FileBytes(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("e":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                           Floats({7, 8})));
    CHECK_THAT(OpenSafetensors(folder.path()).status().message(),
               Contains("tensor b is in more.safetensors and in two2.safetensors"));
  }
  SECTION("a missing shard") {
    folder.Write(index, R"({"weight_map":{"a":"three.safetensors"}})");
    CHECK_THAT(OpenSafetensors(folder.path()).status().message(), Contains("three.safetensors"));
  }
  SECTION("a shard outside the folder") {
    folder.Write(index, R"({"weight_map":{"a":"../one.safetensors"}})");
    CHECK_THAT(OpenSafetensors(folder.path()).status().message(), Contains("same folder"));
  }
  SECTION("an index without a map") {
    folder.Write(index, R"({"weights":{}})");
    CHECK_THAT(OpenSafetensors(folder.path()).status().message(), Contains("weight_map"));
  }
}

TEST_CASE("safetensors: without an index, one file of any name, or all parts of one model") {
  const auto file = [](const std::string& name) {
    return FileBytes(R"({")" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                     Floats({1}));
  };
  const TempFolder folder;
  folder.Write("adapter_model.safetensors", file("x"));
  folder.Write("consolidated.safetensors", file("x"));
  const auto refusal = [&] { return OpenSafetensors(folder.path()).status().message(); };
  CHECK_THAT(refusal(), Contains("contains neither model.safetensors nor") &&
                            Contains("consolidated.safetensors is of a format that is not read"));
  folder.Write("gptq-00001-of-00002.safetensors", file("a"));
  const auto one = OpenSafetensors(folder.path());
  REQUIRE(one.ok());
  CHECK((*one)->Get("a", 0, 1).ok());
  CHECK_FALSE((*one)->Has("x"));
  folder.Write("gptq-00002-of-00002.safetensors", file("b"));
  const auto both = OpenSafetensors(folder.path());
  REQUIRE(both.ok());
  CHECK((*both)->Get("a", 0, 1).ok());
  CHECK((*both)->Get("b", 0, 1).ok());
  folder.Write("gptq-00002-of-00002.safetensors", file("a"));
  CHECK_THAT(refusal(), Contains("tensor a is in gptq-00001-of-00002.safetensors and in"));
  folder.Write("other.safetensors", file("c"));
  CHECK_THAT(refusal(), Contains("which of 3 files are the model"));
}

TEST_CASE("safetensors: the error for a folder without weights lists the files it needs") {
  const TempFolder folder;
  const auto opened = OpenSafetensors(folder.path());
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.status().code() == StatusCode::kNotFound);
  CHECK_THAT(opened.status().message(), Contains("model.safetensors.index.json"));
}

}  // namespace
}  // namespace tandem
