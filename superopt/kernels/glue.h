/* Registration of generated kernels with ONNX Runtime's C API. The declarations contain the parts of the API's structures that are
   used here; their positions are fixed by the API's promise that its structures only grow at the end. */

#include <pthread.h>
#include <stdlib.h>

#define API_VERSION 17

enum { CREATE_STATUS = 0, CREATE_DOMAIN = 26, ADD_OPERATOR = 27, ADD_DOMAIN = 28, MUTABLE_DATA = 51, DIMENSION_COUNT = 61,
       DIMENSIONS = 62, SHAPE_OF = 65, INPUT = 90, OUTPUT = 91, RELEASE_STATUS = 93, RELEASE_SHAPE = 99, PARALLEL_FOR = 274 };

typedef struct Api { void *functions[275]; } Api;
typedef struct ApiBase { const Api *(*get)(uint32_t version); const char *(*version)(void); } ApiBase;
typedef struct Status Status;
typedef struct Context Context;
typedef struct Tensor Tensor;
typedef struct Shape Shape;

#define CALL(api, position, ...) ((Status * (*)(__VA_ARGS__))(api)->functions[position])
#define CHECK(call) do { Status *failed_ = (call); if (failed_) return failed_; } while (0)

typedef struct Extents { int rank; const int64_t *sizes; } Extents;

typedef struct Kernel {
    const char *name;
    int inputs, weights, unused, outputs;
    const int *kinds; /* the element types of the inputs */
    const Extents *shapes; /* of the inputs, then of the outputs */
    size_t scratch;
    void (*run)(const number *const *, number *const *, number *, Workers *);
} Kernel;

typedef struct Operator {
    uint32_t version;
    void *(*create_v1)(const struct Operator *, const Api *, const void *);
    const char *(*name)(const struct Operator *);
    const char *(*provider)(const struct Operator *);
    int (*input_type)(const struct Operator *, size_t);
    size_t (*input_count)(const struct Operator *);
    int (*output_type)(const struct Operator *, size_t);
    size_t (*output_count)(const struct Operator *);
    void (*compute_v1)(void *, Context *);
    void (*destroy)(void *);
    int (*input_kind)(const struct Operator *, size_t);
    int (*output_kind)(const struct Operator *, size_t);
    int (*input_memory)(const struct Operator *, size_t);
    int (*least_inputs)(const struct Operator *);
    int (*same_inputs)(const struct Operator *);
    int (*least_outputs)(const struct Operator *);
    int (*same_outputs)(const struct Operator *);
    Status *(*create)(const struct Operator *, const Api *, const void *, void **);
    Status *(*compute)(void *, Context *);
    Status *(*infer)(const struct Operator *, void *);
    int (*since)(const struct Operator *);
    int (*until)(const struct Operator *);
    void *(*rest[4])(void);
    const Kernel *kernel;
} Operator;

typedef struct State { const Api *api; const Kernel *kernel; } State;

static const char *name_of(const Operator *op) { return op->kernel->name; }
static const char *provider_of(const Operator *op) { (void)op; return "CPUExecutionProvider"; }
static int output_type(const Operator *op, size_t i) { (void)op; (void)i; return 1; }
static int input_type(const Operator *op, size_t i) {
    const Kernel *kernel = op->kernel;
    return i < (size_t)kernel->inputs ? kernel->kinds[i] : i < (size_t)(kernel->inputs + kernel->weights);
}
static int is_required(const Operator *op, size_t i) { (void)op; (void)i; return 0; }
static int first_version(const Operator *op) { (void)op; return 1; }
static int last_version(const Operator *op) { (void)op; return 1; }
static size_t inputs_of(const Operator *op) { return op->kernel->inputs + op->kernel->weights + op->kernel->unused; }
static size_t outputs_of(const Operator *op) { return op->kernel->outputs; }

static Status *create(const Operator *op, const Api *api, const void *info, void **made) {
    (void)info;
    State *state = malloc(sizeof(State));
    if (!state) return CALL(api, CREATE_STATUS, int, const char *)(1, "superopt: no memory for a kernel");
    *state = (State){api, op->kernel};
    *made = state;
    return NULL;
}

static void destroy(void *state) { free(state); }

/* Each thread keeps its scratch memory for later kernels, and replaces it if a kernel needs more. The key frees the memory
   when the thread ends. */
static pthread_key_t scratch_key;
static int has_key;
__attribute__((constructor)) static void make_key(void) { has_key = !pthread_key_create(&scratch_key, free); }
__attribute__((destructor)) static void delete_key(void) { if (has_key) pthread_key_delete(scratch_key); }

static number *scratch_of(size_t size) {
    static _Thread_local number *memory;
    static _Thread_local size_t reserved;
    if (size > reserved) {
        free(memory);
        memory = aligned_alloc(64, (size * sizeof(number) + 63) / 64 * 64);
        reserved = memory ? size : 0;
        if (has_key) pthread_setspecific(scratch_key, memory);
    }
    return memory;
}

static Status *has_shape(const Api *api, const Tensor *tensor, Extents expected, int *same) {
    Shape *shape;
    size_t rank;
    int64_t sizes[16];
    CHECK(CALL(api, SHAPE_OF, const Tensor *, Shape **)(tensor, &shape));
    Status *failed = CALL(api, DIMENSION_COUNT, const Shape *, size_t *)(shape, &rank);
    *same = !failed && rank == (size_t)expected.rank && rank <= 16;
    if (*same) failed = CALL(api, DIMENSIONS, const Shape *, int64_t *, size_t)(shape, sizes, rank);
    for (int i = 0; *same && i < expected.rank; i++) *same = sizes[i] == expected.sizes[i];
    ((void (*)(Shape *))api->functions[RELEASE_SHAPE])(shape);
    return failed;
}

/* The threads of the session in which a kernel runs, and whether one of them read a row at an index out of range. */
typedef struct Pool { Workers workers; const Api *api; const Context *context; int out_of_range; } Pool;

typedef struct Job { Pool *pool; Share *share; const number *const *in; number *const *out; number *scratch; long count, each; } Job;

static void run_part(void *opaque, size_t i) {
    const Job *job = opaque;
    long begin = i * job->each, end = begin + job->each;
    int before = out_of_range;
    out_of_range = 0;
    job->share(job->in, job->out, job->scratch, begin, end + job->each > job->count ? job->count : end);
    if (out_of_range) __atomic_store_n(&job->pool->out_of_range, 1, __ATOMIC_RELAXED);
    out_of_range = before;
}

static void run_parts(Workers *workers, Share *share, const number *const *in, number *const *out, number *scratch, long count, long each) {
    Pool *pool = (Pool *)workers;
    Job job = {pool, share, in, out, scratch, count, each};
    Status *failed = CALL(pool->api, PARALLEL_FOR, const Context *, void (*)(void *, size_t), size_t, size_t, void *)(pool->context, run_part, count / each, 0, &job);
    if (failed) {
        ((void (*)(Status *))pool->api->functions[RELEASE_STATUS])(failed);
        share(in, out, scratch, 0, count);
    }
}

static Status *compute(void *opaque, Context *context) {
    const State *state = opaque;
    const Kernel *kernel = state->kernel;
    const Api *api = state->api;
    const number *in[kernel->inputs + kernel->weights + 1];
    number *out[kernel->outputs];
    for (int i = 0; i < kernel->inputs + kernel->weights; i++) {
        const Tensor *tensor;
        CHECK(CALL(api, INPUT, const Context *, size_t, const Tensor **)(context, i, &tensor));
        if (i < kernel->inputs) {
            int same;
            CHECK(has_shape(api, tensor, kernel->shapes[i], &same));
            if (!same) return CALL(api, CREATE_STATUS, int, const char *)(2, "superopt: an input of a kernel has another shape");
        }
        CHECK(CALL(api, MUTABLE_DATA, const Tensor *, const number **)(tensor, &in[i]));
    }
    for (int i = 0; i < kernel->outputs; i++) {
        Tensor *tensor;
        Extents shape = kernel->shapes[kernel->inputs + i];
        CHECK(CALL(api, OUTPUT, Context *, size_t, const int64_t *, size_t, Tensor **)(context, i, shape.sizes, shape.rank, &tensor));
        CHECK(CALL(api, MUTABLE_DATA, Tensor *, number **)(tensor, &out[i]));
    }
    number *scratch = scratch_of(kernel->scratch);
    if (kernel->scratch && !scratch) return CALL(api, CREATE_STATUS, int, const char *)(1, "superopt: no memory for a kernel");
    out_of_range = 0;
    Pool pool = {{run_parts}, api, context, 0};
    kernel->run(in, out, scratch, &pool.workers);
    if (out_of_range || pool.out_of_range) return CALL(api, CREATE_STATUS, int, const char *)(2, "superopt: an index of a kernel is out of range");
    return NULL;
}

/* Whether this processor has the instructions for which the library was compiled. */
static int runs_here(void) {
#if defined(__x86_64__) && defined(__AVX512F__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#elif defined(__x86_64__) && defined(__AVX2__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#else
    return 1;
#endif
}

/* ONNX Runtime keeps the pointers to the operators, also of sessions in other threads, so operators are constant. */
#define OPERATOR(of) { \
    .version = API_VERSION, .name = name_of, .provider = provider_of, .input_type = input_type, .input_count = inputs_of, \
    .output_type = output_type, .output_count = outputs_of, .destroy = destroy, .input_kind = is_required, \
    .output_kind = is_required, .input_memory = is_required, .create = create, .compute = compute, .since = first_version, \
    .until = last_version, .kernel = of}

static Status *register_kernels(void *options, const ApiBase *base, const char *name, const Operator *operators, int count) {
    const Api *api = base->get(API_VERSION);
    void *domain;
    if (!api || !runs_here()) return NULL; /* ONNX Runtime then runs the functions in the model */
    CHECK(CALL(api, CREATE_DOMAIN, const char *, void **)(name, &domain));
    for (int i = 0; i < count; i++) CHECK(CALL(api, ADD_OPERATOR, void *, const Operator *)(domain, &operators[i]));
    return CALL(api, ADD_DOMAIN, void *, void *)(options, domain);
}
