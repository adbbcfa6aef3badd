#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/weights/checkpoint_quantization.h"
#include "engine_core/weights/safetensors.h"
#include "engine_core/weights/stored_matrix.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

std::string RefusalOf(const Json& config) {
  return std::string(ParseQuantization(config).status().message());
}

// A folder's model.safetensors. Each tensor: its type, shape and bytes.
struct TensorBytes {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

void WriteTensors(const TempFolder& folder, const std::vector<TensorBytes>& tensors) {
  Json header;
  std::string data;
  for (const TensorBytes& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof size);
  folder.Write("model.safetensors", file + text + data);
}

struct Shape {
  int64_t rows, columns;
};

// What is wrong with a module "m" of these tensors.
std::string DecodeRefusal(const Json& config, Shape shape,
                          const std::vector<TensorBytes>& tensors) {
  const TempFolder folder;
  WriteTensors(folder, tensors);
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto quantization = ParseQuantization(config);
  REQUIRE(quantization.ok());
  const StoredMatrix stored = {.name = "m", .rows = shape.rows, .columns = shape.columns};
  return std::string(LoadMatrix(**weights, *quantization, stored).status().message());
}

std::string Zeros(size_t size) { return std::string(size, '\0'); }

TEST_CASE("quantization_config: methods by their names, others are refused with what there is") {
  const auto method_of = [](const Json& config) { return ParseQuantization(config)->method; };
  CHECK(method_of({{"quant_method", "gptq"}}) == QuantizationMethod::kGptq);
  CHECK(method_of({{"quant_method", "AWQ"}, {"version", "gemm"}}) == QuantizationMethod::kAwq);
  CHECK(method_of({{"quant_method", "compressed_tensors"}}) ==
        QuantizationMethod::kCompressedTensors);
  CHECK(method_of({{"quant_algo", "NVFP4"}}) == QuantizationMethod::kModelOpt);
  CHECK_THAT(RefusalOf({{"quant_method", "hqq"}}),
             Contains("quant_method hqq is not supported; supported: awq, bitsandbytes, "
                      "compressed-tensors, fp8, gptq, modelopt"));
  CHECK_THAT(RefusalOf({{"quant_method", "gguf"}}), Contains("quant_method gguf is not supported"));
  CHECK_THAT(RefusalOf(Json::object()), Contains("quant_method (none)"));
  CHECK_THAT(RefusalOf({{"quant_method", "awq"}, {"version", "gemv"}}), Contains("version gemv"));
  CHECK_THAT(RefusalOf({{"quant_method", "gptq"}, {"checkpoint_format", "marlin"}}),
             Contains("checkpoint_format marlin"));
  CHECK_THAT(RefusalOf({{"quant_method", "gptq"}, {"is_marlin_format", true}}),
             Contains("is_marlin_format"));
  CHECK_THAT(RefusalOf({{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}}),
             Contains("format marlin-24"));
  CHECK_THAT(RefusalOf({{"quant_method", "compressed-tensors"}, {"sparsity_config", {{"a", 1}}}}),
             Contains("sparsity_config"));
  for (const char* key : {"sparsity_config", "transform_config"}) {
    CHECK(RefusalOf({{"quant_method", "compressed-tensors"}, {key, Json::object()}}).empty());
  }
  CHECK(RefusalOf({{"quant_method", "compressed-tensors"},
                   {"sparsity_config", {{"format", "dense"}, {"global_sparsity", 0.13}}}})
            .empty());
  CHECK_THAT(RefusalOf({{"quant_method", "compressed-tensors"},
                        {"sparsity_config", {{"format", "sparse-24-bitmask"}}}}),
             Contains("sparsity_config of format sparse-24-bitmask is not supported"));
  CHECK_THAT(RefusalOf({{"quant_method", "compressed-tensors"}, {"transform_config", {{"a", 1}}}}),
             Contains("transform_config"));
  CHECK_THAT(RefusalOf({{"quant_method", "compressed-tensors"}, {"config_groups", {{"g", 1}}}}),
             Contains("config_groups: g: must be an object"));
  for (const Json& block :
       {Json(128), Json({128}), Json({0, 128}), Json({-1, 128}), Json({1, "a"})}) {
    CHECK_THAT(RefusalOf({{"quant_method", "fp8"}, {"weight_block_size", block}}),
               Contains("weight_block_size"));
  }
  CHECK_THAT(RefusalOf({{"quant_method", "modelopt"}, {"quant_algo", "W4A8_AWQ"}}),
             Contains("quant_algo w4a8_awq"));
  for (const char* algorithm :
       {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "MIXED_PRECISION", "MXFP8", "NVFP4"}) {
    const auto parsed =
        ParseQuantization({{"quant_method", "modelopt"}, {"quant_algo", algorithm}});
    REQUIRE(parsed.ok());
    CHECK(parsed->has_quantized_activations == (std::string(algorithm) != "FP8_PB_WO"));
  }
}

TEST_CASE("quantization_config: AutoRound's files are those of other methods") {
  const auto parse = [](const std::string& format) {
    return ParseQuantization({{"quant_method", "auto-round"}, {"packing_format", format}});
  };
  CHECK(parse("auto_round:auto_gptq")->method == QuantizationMethod::kGptq);
  CHECK(parse("auto_round:auto_awq")->method == QuantizationMethod::kAwq);
  CHECK(parse("auto_round:fp8")->method == QuantizationMethod::kFp8);
  CHECK(parse("auto_round:llm_compressor")->method == QuantizationMethod::kCompressedTensors);
  CHECK_THAT(parse("auto_round:gguf").status().message(),
             Contains("packing_format auto_round:gguf is not supported; supported: "
                      "auto_round:auto_gptq, auto_round:auto_awq"));
  const auto without_format = [](const std::string& type) {
    return ParseQuantization({{"quant_method", "inc"}, {"data_type", type}})->method;
  };
  CHECK(without_format("int") == QuantizationMethod::kGptq);
  CHECK(without_format("fp") == QuantizationMethod::kFp8);
  CHECK(without_format("mx_fp4") == QuantizationMethod::kCompressedTensors);
  const auto blocks = ParseQuantization(
      {{"quant_method", "auto-round"}, {"data_type", "fp"}, {"group_size", {64u, 32u}}});
  REQUIRE(blocks.ok());
  CHECK(blocks->block_rows == 64);
  CHECK(blocks->block_columns == 32);
  CHECK(NamesMethod("auto-round", QuantizationMethod::kAwq));
}

TEST_CASE("quantization_config: blocks of weights say nothing about activations") {
  const Json weights = {{"block_structure", {64u, 32u}}};
  const auto parse = [](const Json& group) {
    return ParseQuantization(
        {{"quant_method", "compressed-tensors"}, {"config_groups", {{"g", group}}}});
  };
  const auto weight_only = parse({{"weights", weights}});
  REQUIRE(weight_only.ok());
  CHECK(weight_only->block_rows == 64);
  CHECK(weight_only->block_columns == 32);
  CHECK_FALSE(weight_only->has_quantized_activations);
  CHECK(parse({{"weights", weights}, {"input_activations", Json::object()}})
            ->has_quantized_activations);
  CHECK_THAT(parse({{"weights", {{"block_structure", 3}}}}).status().message(),
             Contains("config_groups: g: block_structure"));
}

TEST_CASE("quantization: the flag may name the method of the checkpoint, as vLLM spells it") {
  CHECK(NamesMethod("gptq_marlin", QuantizationMethod::kGptq));
  CHECK(NamesMethod("marlin", QuantizationMethod::kAwq));
  CHECK_FALSE(NamesMethod("awq", QuantizationMethod::kGptq));
  CHECK(IsMethodName("compressed-tensors"));
  CHECK_FALSE(IsMethodName("int8"));
}

template <class T>
std::string BytesOf(const std::vector<T>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

// A module "m" as numbers.
std::vector<float> Decoded(const Json& config, Shape shape,
                           const std::vector<TensorBytes>& tensors) {
  const TempFolder folder;
  WriteTensors(folder, tensors);
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto quantization = ParseQuantization(config);
  REQUIRE(quantization.ok());
  const auto matrix = LoadMatrix(**weights, *quantization,
                                 {.name = "m", .rows = shape.rows, .columns = shape.columns});
  INFO(matrix.status().message());
  REQUIRE(matrix.ok());
  std::vector<float> numbers(static_cast<size_t>(shape.rows * shape.columns));
  for (int64_t n = 0; n < shape.rows; ++n) {
    matrix->source().Read(n, 0, shape.columns, DType::kF32, numbers.data() + n * shape.columns);
  }
  return numbers;
}

std::vector<float> Bitsandbytes(Shape shape, const std::vector<TensorBytes>& tensors) {
  return Decoded({{"quant_method", "bitsandbytes"}}, shape, tensors);
}

TensorBytes QuantState(const std::string& json) {
  return {
      "m.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(json.size())}, json};
}

// Codes 1 to 6 of a [2, 3] matrix, whose numbers are the codes; blocks of four cross its rows.
std::vector<TensorBytes> Codes4() {
  std::vector<float> map;
  for (int i = 0; i < 16; ++i) map.push_back(static_cast<float>(i));
  return {{"m.weight", "U8", {3, 1}, "\x12\x34\x56"},
          {"m.weight.quant_map", "F32", {16}, BytesOf(map)}};
}

TEST_CASE("bitsandbytes: 4-bit codes with scales, which may be codes themselves") {
  std::vector<TensorBytes> plain = Codes4();
  plain.push_back({"m.weight.absmax", "F32", {2}, BytesOf<float>({2, 0.5f})});
  plain.push_back(QuantState(R"({"blocksize": 4, "quant_type": "nf4"})"));
  CHECK(Bitsandbytes({2, 3}, plain) == std::vector<float>{2, 4, 6, 8, 2.5f, 3});

  // The same bytes in another type.
  plain[0] = {"m.weight", "F16", {2, 1}, std::string("\x12\x34\x56\x78", 4)};
  plain[2] = {"m.weight.absmax", "F32", {2}, BytesOf<float>({2, 0.5f})};
  CHECK(Bitsandbytes({2, 4}, plain) == std::vector<float>{2, 4, 6, 8, 2.5f, 3, 3.5f, 4});

  std::vector<TensorBytes> nested = Codes4();
  std::vector<float> nested_map(256, 0);
  nested_map[7] = 0.5f;
  nested_map[9] = -0.25f;
  nested.push_back({"m.weight.absmax", "U8", {2}, "\x07\x09"});
  nested.push_back({"m.weight.nested_absmax", "F32", {1}, BytesOf<float>({2})});
  nested.push_back({"m.weight.nested_quant_map", "F32", {256}, BytesOf(nested_map)});
  nested.push_back(
      QuantState(R"({"blocksize": 4, "nested_blocksize": 256, "nested_offset": 1.0})"));
  CHECK(Bitsandbytes({2, 3}, nested) == std::vector<float>{2, 4, 6, 8, 2.5f, 3});
}

TEST_CASE("bitsandbytes: int8 rows by their largest number") {
  CHECK(Bitsandbytes({2, 2}, {{"m.weight", "I8", {2, 2}, BytesOf<int8_t>({127, -127, 1, 0})},
                              {"m.SCB", "F32", {2}, BytesOf<float>({254, 127})}}) ==
        std::vector<float>{254, -254, 1, 0});
  const auto in_order = [](char order) {
    return DecodeRefusal({{"quant_method", "bitsandbytes"}}, {2, 2},
                         {{"m.weight", "I8", {2, 2}, Zeros(4)},
                          {"m.SCB", "F32", {2}, Zeros(8)},
                          {"m.weight_format", "U8", {}, std::string(1, order)}});
  };
  CHECK(in_order(0).empty());
  CHECK_THAT(in_order(1), Contains("m.weight_format must be 0"));
}

TEST_CASE("GPTQ: codes of 3 bits lie across the ends of words") {
  // Codes k % 8 of each output, its zero n % 7 less one, over 32 inputs and outputs.
  constexpr int kSize = 32;
  std::vector<uint32_t> codes(3 * kSize), zeros(3);
  const auto put = [](uint32_t* words, int stride, int i, uint32_t code) {
    for (int bit = 0; bit < 3; ++bit) {
      const int at = 3 * i + bit;
      words[at / 32 * stride] |= (code >> bit & 1) << at % 32;
    }
  };
  std::vector<float> wanted;
  for (int n = 0; n < kSize; ++n) {
    for (int k = 0; k < kSize; ++k) {
      put(codes.data() + n, kSize, k, static_cast<uint32_t>(k % 8));
      wanted.push_back(static_cast<float>(k % 8 - (n % 7 + 1)));
    }
    put(zeros.data(), 1, n, static_cast<uint32_t>(n % 7));
  }
  CHECK(Decoded({{"quant_method", "gptq"}}, {kSize, kSize},
                {{"m.qweight", "I32", {3, kSize}, BytesOf(codes)},
                 {"m.qzeros", "I32", {1, 3}, BytesOf(zeros)},
                 {"m.scales", "F32", {1, kSize}, BytesOf(std::vector<float>(kSize, 1))}}) ==
        wanted);
}

TEST_CASE("8 bits: scales for the tensor, rows, groups of columns and blocks") {
  const Json compressed = {{"quant_method", "compressed-tensors"}};
  const auto read = [&](const std::vector<int64_t>& shape, const std::vector<float>& scales) {
    return Decoded(compressed, {2, 4},
                   {{"m.weight", "I8", {2, 4}, BytesOf<int8_t>({1, 2, 3, 4, 5, 6, 7, 8})},
                    {"m.weight_scale", "F32", shape, BytesOf(scales)}});
  };
  for (const std::vector<int64_t>& one : {std::vector<int64_t>{}, {1}, {1, 1}}) {
    CHECK(read(one, {2}) == std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16});
  }
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{2}, {2, 1}}) {
    CHECK(read(rows, {1, 2}) == std::vector<float>{1, 2, 3, 4, 10, 12, 14, 16});
  }
  CHECK(read({2, 2}, {1, 2, 4, 8}) == std::vector<float>{1, 2, 6, 8, 20, 24, 56, 64});
  const Json blocks = {{"quant_method", "fp8"}, {"weight_block_size", {1u, 3u}}};
  CHECK(Decoded(blocks, {2, 4},
                {{"m.weight", "F8_E4M3", {2, 4}, std::string(8, '\x38')},
                 {"m.weight_scale_inv", "F32", {2, 2}, BytesOf<float>({1, 2, 4, 8})}}) ==
        std::vector<float>{1, 1, 1, 2, 4, 4, 4, 8});
  CHECK(Decoded({{"quant_algo", "FP8_PB_WO"}}, {2, 130},
                {{"m.weight", "F8_E4M3", {2, 130}, std::string(260, '\x38')},
                 {"m.weight_scale", "F32", {1, 1, 2, 1}, BytesOf<float>({1, 2})}})[129] == 2);
}

TEST_CASE("8 bits: scales that are exponents") {
  for (const char* type : {"U8", "F8_E8M0"}) {
    const std::vector<TensorBytes> tensors = {
        {"m.weight", "F8_E4M3", {1, 64}, std::string(64, '\x38')},
        {"m.weight_scale", type, {1, 2}, "\x7f\x80"}};
    for (const Json& config :
         {Json({{"quant_method", "modelopt"}, {"quant_algo", "MXFP8"}}),
          Json({{"quant_method", "compressed-tensors"}, {"format", "mxfp8-quantized"}}),
          Json({{"quant_method", "quark"}})}) {
      const std::vector<float> numbers = Decoded(config, {1, 64}, tensors);
      CHECK(numbers[31] == 1);
      CHECK(numbers[32] == 2);
    }
  }
  CHECK_THAT(DecodeRefusal({{"quant_method", "quark"}}, {1, 32},
                           {{"m.weight", "F8_E4M3", {1, 32}, Zeros(32)},
                            {"m.weight_scale", "U8", {1, 1}, "\xff"}}),
             Contains("m.weight_scale has a scale that is not a number (255)"));
}

TEST_CASE("Quark: MXFP4, NVFP4 and int8") {
  const Json quark = {{"quant_method", "quark"},
                      {"global_quant_config", {{"weight", {{"dtype", "fp4"}}}}}};
  const TensorBytes codes = {"m.weight", "U8", {1, 16}, std::string(16, '\x42')};
  const auto mxfp4 = Decoded(quark, {1, 32}, {codes, {"m.weight_scale", "U8", {1, 1}, "\x80"}});
  CHECK(mxfp4[0] == 2);
  CHECK(mxfp4[1] == 4);
  const auto nvfp4 = Decoded(quark, {1, 32},
                             {codes,
                              {"m.weight_scale", "F8_E4M3", {1, 2}, "\x38\x40"},
                              {"m.weight_scale_2", "F32", {}, BytesOf<float>({3})}});
  CHECK(nvfp4[0] == 3);
  CHECK(nvfp4[31] == 12);
  CHECK(Decoded(quark, {1, 2},
                {{"m.weight", "I8", {1, 2}, BytesOf<int8_t>({-3, 5})},
                 {"m.weight_scale", "F32", {1}, BytesOf<float>({2})}}) ==
        std::vector<float>{-6, 10});
}

TEST_CASE("8 bits: integers less their zeros") {
  const Json symmetric = {{"quant_method", "compressed-tensors"}};
  const TensorBytes weight = {"m.weight", "I8", {2, 2}, BytesOf<int8_t>({127, -128, 1, 0})};
  const TensorBytes scales = {"m.weight_scale", "F32", {2, 1}, BytesOf<float>({1, 2})};
  const TensorBytes zeros = {"m.weight_zero_point", "I8", {2, 1}, BytesOf<int8_t>({-128, 3})};
  CHECK(Decoded(symmetric, {2, 2}, {weight, scales, zeros}) == std::vector<float>{255, 0, -4, -6});
  CHECK(DecodeRefusal(symmetric, {2, 2}, {weight, scales}).empty());
  CHECK_THAT(DecodeRefusal(symmetric, {2, 2},
                           {weight, scales, {"m.weight_zero_point", "I8", {1}, Zeros(1)}}),
             Contains("m.weight_zero_point has shape [1], its scales have [2, 1]"));
  const Json asymmetric = {{"quant_method", "compressed-tensors"},
                           {"config_groups", {{"g", {{"weights", {{"symmetric", false}}}}}}}};
  CHECK_THAT(DecodeRefusal(asymmetric, {2, 2}, {weight, scales}),
             Contains("m.weight_zero_point is missing"));
}

TEST_CASE("GPTQ: without g_idx the config says the groups' size, and the last one may be smaller") {
  // Zeros are stored less one, so each weight is the scale of its group below 0.
  const std::vector<TensorBytes> tensors = {
      {"m.qweight", "I32", {12, 8}, Zeros(384)},
      {"m.qzeros", "I32", {2, 1}, Zeros(8)},
      {"m.scales",
       "F32",
       {2, 8},
       BytesOf<float>({1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2})}};
  const auto columns_of_first_group = [&](const Json& group_size) {
    const Json config = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group_size}};
    const std::vector<float> weights = Decoded(config, {8, 96}, tensors);
    CHECK(weights.back() == -2);
    return std::count(weights.begin(), weights.begin() + 96, -1.0F);
  };
  CHECK(columns_of_first_group(64) == 64);
  CHECK(columns_of_first_group(48) == 48);
  // Of another module, where `dynamic` says more.
  for (const Json& other : {Json(-1), Json(32), Json(INT64_MAX), Json("a")}) {
    CHECK(columns_of_first_group(other) == 48);
  }
}

TEST_CASE("quantized matrices: what does not fit is refused by name") {
  const Json gptq = {{"quant_method", "gptq"}}, awq = {{"quant_method", "awq"}};
  const Json compressed = {{"quant_method", "compressed-tensors"}}, fp8 = {{"quant_method", "fp8"}};
  const TensorBytes codes = {"m.qweight", "I32", {4, 8}, Zeros(128)};
  const TensorBytes zeros = {"m.qzeros", "I32", {1, 1}, Zeros(4)};
  const TensorBytes scales = {"m.scales", "F16", {1, 8}, Zeros(16)};
  const Shape shape = {8, 32};
  SECTION("GPTQ") {
    CHECK_THAT(DecodeRefusal(gptq, {8, 40}, {codes, zeros, scales}),
               Contains("/model.safetensors: tensor m.qweight does not hold 8 x 40 codes"));
    CHECK_THAT(DecodeRefusal(gptq, {8, 40}, {{"m.qweight", "I32", {}, Zeros(4)}, zeros, scales}),
               Contains("m.qweight does not hold 8 x 40 codes"));
    CHECK_THAT(DecodeRefusal(gptq, shape, {codes, scales}), Contains("m.qzeros"));
    CHECK_THAT(DecodeRefusal(gptq, shape, {codes, zeros}), Contains("m.scales"));
    CHECK_THAT(DecodeRefusal(gptq, shape, {codes, {"m.qzeros", "I32", {0, 1}, ""}, scales}),
               Contains("has 0 groups"));
    CHECK_THAT(DecodeRefusal(gptq, shape,
                             {codes,
                              {"m.qzeros", "I32", {3, 1}, Zeros(12)},
                              {"m.scales", "F16", {3, 8}, Zeros(48)}}),
               Contains("3 groups for 32 inputs, and no g_idx"));
    const Json ordered = {{"quant_method", "gptq"}, {"desc_act", true}};
    const TensorBytes zeros_of_2 = {"m.qzeros", "I32", {2, 1}, Zeros(8)};
    const TensorBytes scales_of_2 = {"m.scales", "F16", {2, 8}, Zeros(32)};
    CHECK_THAT(DecodeRefusal(ordered, shape, {codes, zeros_of_2, scales_of_2}),
               Contains("m.g_idx is missing: with desc_act"));
    CHECK(DecodeRefusal(gptq, shape, {codes, zeros_of_2, scales_of_2}).empty());
    CHECK(DecodeRefusal(ordered, shape, {codes, zeros, scales}).empty());
    CHECK_THAT(DecodeRefusal(gptq, shape,
                             {codes, zeros, scales, {"m.g_idx", "I32", {32}, std::string(128, 1)}}),
               Contains("m.g_idx has the group 16843009 of 1"));
    CHECK_THAT(DecodeRefusal(gptq, shape, {codes, zeros, {"m.scales", "I32", {1, 8}, Zeros(32)}}),
               Contains("m.scales has dtype I32"));
  }
  SECTION("AWQ") {
    CHECK_THAT(DecodeRefusal(awq, {32, 4}, {codes, zeros, scales}), Contains("must be [4, 4]"));
    CHECK_THAT(DecodeRefusal(awq, {60, 4}, {codes, zeros, scales}), Contains("60 outputs"));
  }
  SECTION("bitsandbytes") {
    const Json config = {{"quant_method", "bitsandbytes"}};
    const TensorBytes absmax = {"m.weight.absmax", "F32", {2}, Zeros(8)};
    const auto refusal = [&](Shape of, std::vector<TensorBytes> more) {
      for (const TensorBytes& tensor : Codes4()) more.push_back(tensor);
      return DecodeRefusal(config, of, more);
    };
    CHECK_THAT(refusal({2, 5}, {}), Contains("m.weight has 3 bytes of codes, must have 5"));
    CHECK_THAT(refusal({2, 3}, {absmax}), Contains("quant_state.bitsandbytes__nf4"));
    CHECK_THAT(refusal({2, 3}, {absmax, QuantState("{")}), Contains("not a JSON object"));
    CHECK_THAT(refusal({2, 3}, {absmax, QuantState(R"({"blocksize": 0})")}),
               Contains("has a bad value: blocksize is 0"));
    CHECK_THAT(refusal({2, 3}, {absmax, QuantState(R"({"blocksize": 2})")}),
               Contains("m.weight.absmax has shape [2], must be [3]"));
    CHECK_THAT(refusal({2, 3}, {{"m.weight.absmax", "U8", {2}, Zeros(2)},
                                QuantState(R"({"blocksize": 4})")}),
               Contains("m.weight.nested_quant_map"));
    CHECK_THAT(DecodeRefusal(config, {2, 2}, {{"m.weight", "I8", {2, 2}, Zeros(4)}}),
               Contains("m.SCB"));
  }
  SECTION("compressed-tensors") {
    const TensorBytes packed = {"m.weight_packed", "I32", {8, 4}, Zeros(128)};
    const TensorBytes row_scales = {"m.weight_scale", "F32", {8, 1}, Zeros(32)};
    CHECK_THAT(DecodeRefusal(compressed, shape, {packed}), Contains("m.weight_scale"));
    CHECK_THAT(DecodeRefusal(compressed, shape,
                             {packed, row_scales, {"m.weight_shape", "I64", {2}, Zeros(16)}}),
               Contains("m.weight_shape is [0, 0], the config needs [8, 32]"));
    CHECK_THAT(DecodeRefusal(compressed, shape,
                             {packed, row_scales, {"m.weight_g_idx", "I32", {32}, Zeros(128)}}),
               Contains("actorder group is not supported"));
    const auto with_groups = [&](const Json& groups) {
      Json config = compressed;
      config["config_groups"] = groups;
      return DecodeRefusal(config, shape, {packed, row_scales});
    };
    const Json asymmetric = {{"weights", {{"symmetric", false}}}};
    const Json symmetric = {{"weights", {{"symmetric", true}}}};
    CHECK_THAT(with_groups({{"a", asymmetric}}), Contains("m.weight_zero_point is missing"));
    CHECK(with_groups({{"a", symmetric}}).empty());
    CHECK(with_groups({{"a", asymmetric}, {"b", symmetric}}).empty());
    CHECK(with_groups({{"a", {{"weights", Json::object()}}}}).empty());
    CHECK_THAT(DecodeRefusal(compressed, {8, 36},
                             {{"m.weight_packed", "U8", {8, 18}, Zeros(144)}, row_scales}),
               Contains("must be a multiple of 16"));
  }
  SECTION("8 bits") {
    const TensorBytes numbers = {"m.weight", "F8_E4M3", {8, 32}, Zeros(256)};
    CHECK_THAT(DecodeRefusal(fp8, shape, {numbers}), Contains("m.weight_scale"));
    CHECK_THAT(DecodeRefusal(fp8, {8, 16}, {numbers}), Contains("m.weight has shape [8, 32]"));
    CHECK_THAT(DecodeRefusal(fp8, shape, {numbers, {"m.weight_scale", "F32", {7}, Zeros(28)}}),
               Contains("m.weight_scale has shape [7], must be one number, one or more for each "
                        "of the 8 rows, or [1, 1] for blocks of 128 x 128"));
    CHECK_THAT(DecodeRefusal(fp8, shape,
                             {{"m.weight", "I8", {8, 32}, Zeros(256)},
                              {"m.weight_scale", "F32", {1}, Zeros(4)}}),
               Contains("m.weight has dtype I8"));
  }
}

TEST_CASE("quantized matrices: scales that are infinite or no numbers are refused by name") {
  const Json fp8 = {{"quant_method", "fp8"}}, modelopt = {{"quant_algo", "NVFP4"}};
  const Json compressed = {{"quant_method", "compressed-tensors"}};
  const Shape shape = {8, 32};
  const auto words = [](std::initializer_list<uint32_t> values) {
    return std::string(reinterpret_cast<const char*>(values.begin()),
                       values.size() * sizeof(uint32_t));
  };
  constexpr uint32_t kOne = 0x3f800000, kInfinity = 0x7f800000, kNan = 0x7fc00000;
  const TensorBytes numbers = {"m.weight", "F8_E4M3", {8, 32}, Zeros(256)};
  for (const uint32_t value : {kNan, kInfinity, kInfinity | 1U << 31}) {
    CHECK_THAT(DecodeRefusal(fp8, shape, {numbers, {"m.weight_scale", "F32", {1}, words({value})}}),
               Contains("m.weight_scale has a number that is infinite or none"));
    CHECK_THAT(DecodeRefusal(fp8, {2, 4},
                             {{"m.weight", "F8_E4M3", {2, 4}, Zeros(8)},
                              {"m.weight_scale", "F32", {2}, words({kOne, value})}}),
               Contains("m.weight_scale has a number that is infinite or none"));
  }
  // e4m3's 0x7f is no number, a global scale of 0 divides.
  const TensorBytes codes = {"m.weight_packed", "U8", {8, 16}, Zeros(128)};
  const TensorBytes scales = {"m.weight_scale", "F8_E4M3", {8, 2}, std::string(16, '\x38')};
  const TensorBytes bad = {"m.weight_scale", "F8_E4M3", {8, 2}, std::string(16, '\x7f')};
  const TensorBytes one = {"m.weight_global_scale", "F32", {1}, words({kOne})};
  CHECK(DecodeRefusal(compressed, shape, {codes, scales, one}).empty());
  CHECK_THAT(DecodeRefusal(compressed, shape, {codes, bad, one}), Contains("m.weight_scale has"));
  CHECK_THAT(
      DecodeRefusal(compressed, shape,
                    {codes, scales, {"m.weight_global_scale", "F32", {1}, words({kInfinity})}}),
      Contains("m.weight_global_scale has a number that is infinite or none"));
  for (const uint32_t tiny : {0U, 1U}) {
    CHECK_THAT(DecodeRefusal(compressed, shape,
                             {codes, scales, {"m.weight_global_scale", "F32", {1}, words({tiny})}}),
               Contains("m.weight_global_scale makes a scale infinite or no number"));
  }
  CHECK(DecodeRefusal(modelopt, shape,
                      {{"m.weight", "U8", {8, 16}, Zeros(128)},
                       scales,
                       {"m.weight_scale_2", "F32", {}, Zeros(4)}})
            .empty());
}

TEST_CASE("quantized matrices: a module with a dense weight is read as numbers") {
  const TempFolder folder;
  WriteTensors(folder, {{"m.weight", "F32", {1, 1}, Zeros(4)}});
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto gptq = ParseQuantization({{"quant_method", "gptq"}});
  CHECK(LoadMatrix(**weights, *gptq, {.name = "m", .rows = 1, .columns = 1}).ok());
  CHECK_FALSE(LoadMatrix(**weights, *gptq, {.name = "n", .rows = 1, .columns = 1}).ok());
}

}  // namespace
}  // namespace tandem
