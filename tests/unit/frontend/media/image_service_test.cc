// Images through tandem-media, and through one whose decoder fails on request
// (tests/support/faulty_media.cc).

#include "frontend/media/image_service.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "frontend/net/net.h"
#include "media/decoder/decode_image.h"
#include "media/decoder/resize.h"
#include "media/decoder/tower_pixels.h"
#include "media/protocol.h"
#include "tests/support/images/encode_image.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Image = StatusOr<PreparedImage>;

const std::string kReal = TANDEM_BIN_DIR "/tandem-media";
const std::string kFaulty = TANDEM_BIN_DIR "/faulty/tandem-media";

ImageSpec Spec() {
  ImageSpec spec;
  spec.patch_size = 16;
  spec.merge_size = 2;
  spec.temporal_patch_size = 2;
  spec.min_pixels = 1024;
  spec.max_pixels = 16384;
  spec.mean = spec.std = {0.5F, 0.5F, 0.5F};
  return spec;
}

std::string SomePng() {
  std::string rows;
  for (int i = 0; i < 60 * 40 * 3; ++i) rows += static_cast<char>(i * i >> 4);
  return EncodePng(60, 40, {}, rows);
}

class Service {
 public:
  explicit Service(const std::string& program, int max_running = 2, double timeout_s = 600)
      : service_({.program = program, .max_running = max_running, .timeout_s = timeout_s},
                 &clock_) {}

  std::future<Image> Begin(std::string bytes, std::function<bool()> is_wanted = nullptr) {
    const auto promise = std::make_shared<std::promise<Image>>();
    service_.Prepare(
        std::move(bytes), Spec(), [promise](Image image) { promise->set_value(std::move(image)); },
        std::move(is_wanted));
    return promise->get_future();
  }
  Image Prepare(std::string bytes) { return Begin(std::move(bytes)).get(); }
  ImageService* get() { return &service_; }

 private:
  SystemClock clock_;
  ImageService service_;
};

TEST_CASE("an image comes as the decoder's own functions make it") {
  Service service(kReal);
  const Image image = service.Prepare(SomePng());
  INFO(image.status().ToString());
  REQUIRE(image.ok());
  const RgbImage decoded = DecodeImage(SomePng(), {}).value();
  const ImageSize size = ResizedSize(Spec(), decoded.size).value();
  const RgbImage resized = Resize(decoded, size, kBicubic);
  std::string pixels(static_cast<size_t>(size.num_pixels()) * 6 * sizeof(float), '\0');
  WriteTowerPixels(Spec(), resized,
                   {reinterpret_cast<float*>(pixels.data()), pixels.size() / sizeof(float)});
  CHECK(size == ImageSize{.height = 32, .width = 64});
  CHECK(image->grid_h == 2);
  CHECK(image->grid_w == 4);
  CHECK(image->num_tokens == 2);
  CHECK(image->shape == std::vector<int64_t>{8, 1536});
  CHECK(image->pixels == pixels);
}

TEST_CASE("an image that is wrong is refused with the reason") {
  Service service(kReal);
  const auto message = [&](std::string bytes) {
    const Image image = service.Prepare(std::move(bytes));
    CHECK(image.status().code() == StatusCode::kInvalidArgument);
    return image.status().message();
  };
  CHECK(message("GIF89a") == "the image is a GIF image; PNG, JPEG and WebP are supported");
  CHECK(message("") == "the image is an empty file; PNG, JPEG and WebP are supported");
  CHECK(message(SomePng().substr(0, 900)) ==
        "the PNG image cannot be decoded: the file is truncated");
  CHECK(message(std::string(kMaxImageBytes + 1, 'x')) ==
        "the image has 67108865 bytes; at most 67108864 are allowed");
}

// The reports come from signal handlers, where sanitizers' own code has no stack.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a decoder that crashes, hangs or takes too much takes its image alone") {
  Service service(kFaulty, 3);
  const struct {
    const char* bytes;
    const char* message;
  } cases[] = {
      {"crash", "the image makes its decoder crash"},
      {"fail a check", "the image makes its decoder crash"},
      {"spin", "the image takes too much CPU time"},
      {"sleep", "the image takes too long"},
      {"allocate", "the image needs too much memory"},
      {"be killed", "the image ends its decoder without a word"},
  };
  std::vector<std::future<Image>> bad, good;
  for (const auto& wrong : cases) {
    bad.push_back(service.Begin(wrong.bytes));
    good.push_back(service.Begin("be gray"));
    good.push_back(service.Begin(SomePng()));
  }
  for (size_t i = 0; i < std::size(cases); ++i) {
    const Image image = bad[i].get();
    CAPTURE(cases[i].bytes);
    CHECK(image.status().code() == StatusCode::kInvalidArgument);
    CHECK(image.status().message() == cases[i].message);
  }
  for (std::future<Image>& image : good) CHECK(image.get().ok());
}
#endif

TEST_CASE("an image's process that was taken over is not believed") {
  Service service(kFaulty);
  for (const char* lie :
       {"lie: size", "lie: packet", "lie: huge", "lie: empty", "lie: socket", "lie: no file"}) {
    CAPTURE(lie);
    CHECK(service.Prepare(lie).status().message() == "the image makes its decoder reply wrongly");
  }
  CHECK(service.Prepare(SomePng()).ok());
}

TEST_CASE("the death of tandem-media loses no image") {
  Service service(kFaulty);
  std::vector<std::future<Image>> images;
  for (int i = 0; i < 6; ++i) {
    images.push_back(service.Begin(i % 3 == 0 ? "kill the program" : SomePng()));
  }
  for (std::future<Image>& image : images) {
    const Image prepared = image.get();
    INFO(prepared.status().ToString());
    CHECK(prepared.ok());
  }
}

// The first that any of its threads has forked; 0: there is none.
pid_t ChildOf(const std::string& process) {
  pid_t child = 0;
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + process + "/task", error)) {
    if (child == 0) std::ifstream(thread.path() / "children") >> child;
  }
  return child;
}

TEST_CASE("an image that nobody waits for any more is not decoded to its end") {
  Service service(kFaulty);
  std::atomic<bool> is_wanted = true;
  std::future<Image> image = service.Begin("compute", [&] { return is_wanted.load(); });
  pid_t program = 0, decoder = 0;
  while (program == 0) program = ChildOf("self");
  while (decoder == 0) decoder = ChildOf(std::to_string(program));
  is_wanted = false;
  CHECK(image.get().status().code() == StatusCode::kCancelled);
  while (ChildOf(std::to_string(program)) == decoder) {
  }
  CHECK(service.Prepare(SomePng()).ok());
}

TEST_CASE("an image that takes longer than the service waits ends with that") {
  Service service(kFaulty, 2, 0.1);
  while (!service.Prepare("be gray").ok()) {
  }  // else its turn might not come in time
  CHECK(service.Prepare("wait").status().message() == "the image takes too long to decode");
}

TEST_CASE("an image whose turn does not come is refused") {
  Service service("/bin/false", 2, 0.1);
  const Status status = service.Prepare(SomePng()).status();
  CHECK(status.code() == StatusCode::kResourceExhausted);
  CHECK(status.message() == "the image waited too long for its decoder");
}

TEST_CASE("without tandem-media there are no images") {
  Service service("/nowhere/tandem-media");
  const Image image = service.Prepare(SomePng());
  CHECK(image.status().code() == StatusCode::kInternal);
  CHECK(image.status().message().find("images are not available: /nowhere/tandem-media") == 0);
}

TEST_CASE("a shard's image comes back on the shard") {
  Service service(kReal);
  Shard shard(0);
  shard.Start();
  std::promise<bool> is_right;
  shard.Post([&] {
    service.get()->Prepare(SomePng(), Spec(), [&](Image image) {
      is_right.set_value(image.ok() && shard.OnThread());
    });
  });
  CHECK(is_right.get_future().get());
  shard.Stop();
  shard.Join();
}

}  // namespace
}  // namespace tandem
