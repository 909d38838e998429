// Which engines of cuDNN a row may use. The notes that count, and NVIDIA's own answers: the heuristics of cuDNN 9.19 work
// without a GPU for a device that is described in JSON, so every kind of convolution is looked up for several GPUs.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_plan.h"
#include "kernels/devices.h"
#include "kernels/plugin_file.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr auto kTensor = CUDNN_NUMERICAL_NOTE_TENSOR_CORE, kNan = CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
using Notes = std::vector<cudnnBackendNumericalNote_t>;

TEST(CudnnNotes, OnlyKnownNotesThatChangeNoNumberPass) {
  for (int note = 0; note < CUDNN_NUMERICAL_NOTE_TYPE_COUNT + 3; ++note) {
    const auto one = static_cast<cudnnBackendNumericalNote_t>(note);
    const bool harmless = one == kTensor || one == kNan;
    EXPECT_EQ(unwanted_note(TensorCores::allowed, Notes{one}).empty(), harmless) << note;
    EXPECT_EQ(unwanted_note(TensorCores::needed, Notes{kTensor, one}).empty(), harmless) << note;
    EXPECT_EQ(unwanted_note(TensorCores::excluded, Notes{one}).empty(), one == kNan) << note;
  }
  EXPECT_TRUE(unwanted_note(TensorCores::excluded, Notes{}).empty());
  EXPECT_FALSE(unwanted_note(TensorCores::needed, Notes{}).empty()) << "TF32 must not silently be FP32";
  EXPECT_TRUE(unwanted_note(TensorCores::allowed, Notes{}).empty());
}

// The library that the plugin depends on: NVIDIA's, or the stand-in of the software GPU.
template <class Function>
Function* library_function(const char* name) {
  static void* handle = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  return handle ? reinterpret_cast<Function*>(dlsym(handle, name)) : nullptr;
}
#define HM_CALL(function) (*library_function<decltype(function)>(#function))

using Node = cudnnBackendDescriptor_t;

// Descriptors of one look-up. `valid` is false once a call has failed.
class LookUp {
 public:
  ~LookUp() {
    for (const Node node : nodes_) HM_CALL(cudnnBackendDestroyDescriptor)(node);
  }
  Node make(cudnnBackendDescriptorType_t type) {
    Node node = nullptr;
    note(HM_CALL(cudnnBackendCreateDescriptor)(type, &node));
    nodes_.push_back(node);
    return node;
  }
  template <class T>
  void set(Node node, int name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    note(HM_CALL(cudnnBackendSetAttribute)(node, static_cast<cudnnBackendAttributeName_t>(name), type,
                                           static_cast<int64_t>(values.size()), values.data()));
  }
  void numbers(Node node, int name, const std::vector<int64_t>& values) { set(node, name, CUDNN_TYPE_INT64, values); }
  void part(Node node, int name, Node other) { set(node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{other}); }
  void finalize(Node node) { note(HM_CALL(cudnnBackendFinalize)(node)); }
  void note(cudnnStatus_t status) { valid = valid && status == CUDNN_STATUS_SUCCESS; }
  bool valid = true;

 private:
  std::vector<Node> nodes_;
};

struct Gpu {
  int capability;  // 900 for 9.0
  const char* name;
  int multiprocessors, shared_memory;
};
constexpr Gpu kGpus[] = {{750, "Tesla T4", 40, 65536},
                         {800, "NVIDIA A100-SXM4-80GB", 108, 166912},
                         {900, "NVIDIA H100 80GB HBM3", 132, 232448},
                         {1000, "NVIDIA B200", 148, 232448}};

std::string json_of(const Gpu& gpu) {
  return "{\"deviceVer\":" + std::to_string(gpu.capability) + ",\"deviceName\":\"" + gpu.name +
         "\",\"multiProcessorCount\":" + std::to_string(gpu.multiprocessors) +
         ",\"maxSharedMemoryPerBlockOptin\":" + std::to_string(gpu.shared_memory) +
         ",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
         "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024,"
         "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
         "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1900000,"
         "\"memClockRateKHz\":2600000,\"l2CacheSize\":50000000,\"totalGlobalMem\":80000000000,\"driverVer\":13000,"
         "\"cudaDeviceId\":0}";
}

struct Names {
  cudnnBackendDescriptorType_t operation;
  int x, w, y, convolution;
};
constexpr Names kOperations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC}};

// The notes of every engine that the heuristics list for a 3x3 convolution; nothing if the library does not know devices
// that are described.
std::vector<Notes> listed(const Gpu& gpu, const Names& names, cudnnDataType_t type, bool last, int64_t groups) {
  LookUp look_up;
  const auto tensor = [&](int64_t id, int64_t n, int64_t c, int64_t h, int64_t w) {
    const Node node = look_up.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    look_up.set(node, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
    look_up.numbers(node, CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w});
    if (last)
      look_up.numbers(node, CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, 1, w * c, c});
    else
      look_up.numbers(node, CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, h * w, w, 1});
    look_up.numbers(node, CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
    look_up.numbers(node, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
    look_up.finalize(node);
    return node;
  };
  const Node x = tensor(1, 2, 32, 16, 16), w = tensor(2, 32, 32 / groups, 3, 3), y = tensor(3, 2, 32, 16, 16);
  const Node convolution = look_up.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  look_up.numbers(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  look_up.set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
              std::vector{type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT});
  look_up.set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
              std::vector{CUDNN_CROSS_CORRELATION});
  for (const int name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                         CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES})
    look_up.numbers(convolution, name, {1, 1});
  look_up.finalize(convolution);
  const Node operation = look_up.make(names.operation);
  look_up.part(operation, names.x, x), look_up.part(operation, names.w, w), look_up.part(operation, names.y, y);
  look_up.part(operation, names.convolution, convolution);
  look_up.finalize(operation);
  const Node graph = look_up.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  look_up.part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  look_up.finalize(graph);
  EXPECT_TRUE(look_up.valid);
  const Node device = look_up.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  if (!look_up.valid) return {};  // before cuDNN 9.8, and in the stand-in
  const std::string json = json_of(gpu);
  std::vector<char> text(json.begin(), json.end());
  text.push_back(0);
  look_up.set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text);
  look_up.finalize(device);
  if (!look_up.valid) return {};  // a version with other facts of devices
  std::vector<Notes> all;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    const Node heuristic = look_up.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    look_up.part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    look_up.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode});
    look_up.part(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    look_up.finalize(heuristic);
    int64_t count = 0;
    look_up.note(HM_CALL(cudnnBackendGetAttribute)(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    std::vector<Node> configurations;
    for (int64_t i = 0; i < count; ++i) configurations.push_back(look_up.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    look_up.note(HM_CALL(cudnnBackendGetAttribute)(
        heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, configurations.data()));
    for (int64_t i = 0; i < count; ++i) {
      Node engine = look_up.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      int64_t written = 0;
      look_up.note(HM_CALL(cudnnBackendGetAttribute)(configurations[static_cast<size_t>(i)],
                                                     CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                     &written, &engine));
      Notes notes(16);
      look_up.note(HM_CALL(cudnnBackendGetAttribute)(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                     CUDNN_TYPE_NUMERICAL_NOTE, 16, &written, notes.data()));
      notes.resize(static_cast<size_t>(written));
      all.push_back(notes);
    }
  }
  EXPECT_TRUE(look_up.valid);
  return all;
}

TEST(CudnnNotes, CudnnHasAnEngineForEveryConvolutionThatARowPromises) {
  if (!library_function<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor"))
    GTEST_SKIP() << "the plugin, or its library, cannot be loaded or called";
  // On a machine with an H200 cuDNN 9.19 ends the process in this look-up. There the rows ask it about the GPU itself.
  for (const DeviceRow& row : known_devices())
    if (row.name.starts_with("cuda:") && row.absent.empty())
      GTEST_SKIP() << "cuDNN is asked about GPUs that are described only where there is no GPU";
  bool any = false;
  for (const Gpu& gpu : kGpus)
    for (const Names& names : kOperations)
      for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_DOUBLE})
        for (const bool last : {false, true})
          for (const int64_t groups : {1, 32}) {
            if (type == CUDNN_DATA_BFLOAT16 && gpu.capability < 800) continue;
            const std::vector<Notes> all = listed(gpu, names, type, last, groups);
            if (all.empty() && !any) GTEST_SKIP() << "this library does not know devices that are only described";
            any = true;
            const auto usable = [&](TensorCores tensor_cores) {
              size_t count = 0;
              for (const Notes& notes : all) count += unwanted_note(tensor_cores, notes).empty();
              return count;
            };
            const std::string name = std::string(gpu.name) + " operation " + std::to_string(names.operation) +
                                     " type " + std::to_string(type) + (last ? " nhwc" : "") + " groups " +
                                     std::to_string(groups) + " of " + std::to_string(all.size());
            if (type != CUDNN_DATA_FLOAT) {
              EXPECT_GT(usable(TensorCores::allowed), 0u) << name;
              continue;
            }
            EXPECT_GT(usable(TensorCores::excluded), 0u) << name;
            // Tensor cores multiply FP32 as TF32, which exists from compute capability 8.0 on: the note is that of TF32.
            EXPECT_EQ(usable(TensorCores::needed) > 0, gpu.capability >= 800) << name;
          }
}

}  // namespace
}  // namespace halfmark::kernels::cuda
