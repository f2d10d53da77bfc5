CREATE TABLE public.agent (
    node character varying(100) NOT NULL,
    labels text NOT NULL,
    programs text NOT NULL,
    running text NOT NULL,
    buffered bigint NOT NULL,
    last_seen double precision NOT NULL
);
CREATE TABLE public.latest (
    name character varying(100) NOT NULL,
    node character varying(100) NOT NULL,
    value text,
    unit character varying(40),
    "time" double precision,
    last_run double precision NOT NULL,
    last_exit_code integer NOT NULL,
    last_error text NOT NULL
);
CREATE TABLE public.registration (
    name character varying(100) NOT NULL,
    document text NOT NULL
);
CREATE TABLE public.sample (
    id bigint NOT NULL,
    name character varying(100) NOT NULL,
    node character varying(100) NOT NULL,
    "time" double precision NOT NULL,
    value text NOT NULL,
    unit character varying(40) NOT NULL,
    exit_code integer NOT NULL,
    error text NOT NULL,
    source character varying(128),
    seq bigint
);
CREATE SEQUENCE public.sample_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.sample_id_seq OWNED BY public.sample.id;
CREATE TABLE public.token (
    digest character varying(64) NOT NULL,
    role character varying(10) NOT NULL,
    node character varying(100),
    label character varying(100) NOT NULL,
    created double precision NOT NULL
);
ALTER TABLE ONLY public.sample ALTER COLUMN id SET DEFAULT nextval('public.sample_id_seq'::regclass);
INSERT INTO public.agent VALUES ('w1', '{"rack": "1"}', '["cpu_free", "cpu_performance"]', '["cpu_free"]', 3, 1700000100);
INSERT INTO public.agent VALUES ('w2', '{}', '["cpu_free"]', '[]', 0, 1700000050.5);
INSERT INTO public.latest VALUES ('cpu_free', 'w1', '0.5', 'fraction', 1700000005, 1700000006, 3, 'no "sensor"');
INSERT INTO public.latest VALUES ('note', 'w2', '"text"', '', 1700000003, 1700000003, 0, '');
INSERT INTO public.latest VALUES ('cpu_free', 'w2', '1', 'fraction', 1700000004, 1700000004, 0, '');
INSERT INTO public.latest VALUES ('gpu', 'w3', NULL, NULL, NULL, 1700000004, 1, 'never');
INSERT INTO public.registration VALUES ('cpu_free', '{"name":"cpu_free","program":"cpu_free","arguments":[],"kind":"collector","interval_s":5.0,"timeout_s":5.0,"nodes":[],"labels":{},"replicas":null,"unit":"fraction","inputs":[],"window_s":0.0}');
INSERT INTO public.registration VALUES ('p', '{"name":"p","program":"cpu_performance","arguments":[],"kind":"processor","interval_s":10.0,"timeout_s":5.0,"nodes":[],"labels":{"rack":"1"},"replicas":2,"unit":"","inputs":["cpu_free"],"window_s":60.0}');
INSERT INTO public.sample VALUES (1, 'cpu_free', 'w1', 1700000000, '0.0', 'fraction', 0, '', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1);
INSERT INTO public.sample VALUES (2, 'cpu_free', 'w1', 1700000001, '0.1', 'fraction', 0, '', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 2);
INSERT INTO public.sample VALUES (3, 'cpu_free', 'w1', 1700000002, '0.2', 'fraction', 0, '', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 3);
INSERT INTO public.sample VALUES (4, 'cpu_free', 'w1', 1700000003, '0.3', 'fraction', 0, '', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 4);
INSERT INTO public.sample VALUES (5, 'cpu_free', 'w1', 1700000004, '0.4', 'fraction', 0, '', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 5);
INSERT INTO public.sample VALUES (6, 'cpu_free', 'w1', 1700000005, '0.5', 'fraction', 0, '', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 6);
INSERT INTO public.sample VALUES (7, 'cpu_free', 'w1', 1700000006, 'null', 'fraction', 3, 'no "sensor"', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 7);
INSERT INTO public.sample VALUES (8, 'cpu_free', 'w2', 1700000001, '0.5', 'fraction', 0, '', NULL, NULL);
INSERT INTO public.sample VALUES (9, 'cpu_free', 'w2', 1700000002, '{"a":[1,null]}', 'fraction', 0, '', NULL, NULL);
INSERT INTO public.sample VALUES (10, 'note', 'w2', 1700000003, '"text"', '', 0, '', NULL, NULL);
INSERT INTO public.sample VALUES (11, 'cpu_free', 'w2', 1700000004, '1', 'fraction', 0, '', 'node w2', 9);
INSERT INTO public.sample VALUES (12, 'gpu', 'w3', 1700000004, 'null', 'fraction', 1, 'never', NULL, NULL);
INSERT INTO public.token VALUES ('3770a2d64d5a3b4b047b025d0807d4bab65f351946ac1575cb71f1815a6231d1', 'admin', NULL, 'first start', 1699999999);
INSERT INTO public.token VALUES ('4b7401946641d04cb081e50d769611e478f6c2497df2a29f7d7ec3ba397d8aa0', 'agent', NULL, 'first start', 1699999999);
INSERT INTO public.token VALUES ('ef57c79dd4527e498f32329db521f88df9e3113e6e502820a3caf79d712de252', 'agent', 'w1', 'first start', 1699999999);
INSERT INTO public.token VALUES ('429b9bb120a359b219aaaa38fc35040556348dbd6ca1e791030fe9f50c32f23a', 'reader', NULL, 'first start', 1699999999);
SELECT pg_catalog.setval('public.sample_id_seq', 12, true);
ALTER TABLE ONLY public.agent
    ADD CONSTRAINT agent_pkey PRIMARY KEY (node);
ALTER TABLE ONLY public.latest
    ADD CONSTRAINT latest_pkey PRIMARY KEY (name, node);
ALTER TABLE ONLY public.registration
    ADD CONSTRAINT registration_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.sample
    ADD CONSTRAINT sample_once UNIQUE (source, seq);
ALTER TABLE ONLY public.sample
    ADD CONSTRAINT sample_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (digest);
CREATE INDEX sample_history ON public.sample USING btree (name, node, "time");
CREATE INDEX sample_time ON public.sample USING btree ("time");
